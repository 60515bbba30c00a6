/* Values as the page keeps them, and colours for them. */

/** The values of a layer, a Float32Array (heads, rows, columns); unpacked when they are first looked at. */
async function unpack(layer, bits, signed) {
  if (!layer.values) {
    const buffer = await inflate(layer.data);
    const kinds = { "8,false": Uint8Array, "16,false": Uint16Array, "8,true": Int8Array, "16,true": Int16Array };
    const steps = signed ? 2 ** (bits - 1) - 1 : 2 ** bits - 1;
    layer.values = Float32Array.from(new kinds[`${bits},${signed}`](buffer), (step) => {
      const root = step / steps;
      return layer.most * root * Math.abs(root);
    });
    delete layer.data;
  }
  return layer.values;
}

/** One head's rows × columns, or the mean of all where `head` is "mean". */
function headOf(values, heads, head, size) {
  if (head !== "mean") return values.subarray(head * size, (head + 1) * size);
  const mean = new Float32Array(size);
  values.forEach((value, index) => { mean[index % size] += value / heads; });
  return mean;
}

/** An sRGB colour, 0 to 255, from OKLab's lightness, chroma and hue in turns (Ottosson 2020). */
function fromOklch(lightness, chroma, hue) {
  const a = chroma * Math.cos(2 * Math.PI * hue), b = chroma * Math.sin(2 * Math.PI * hue);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const linear = [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
  const encode = (x) => (x <= 0.0031308 ? 12.92 * x : 1.055 * x ** (1 / 2.4) - 0.055);
  return linear.map((x) => Math.round(255 * encode(Math.min(1, Math.max(0, x)))));
}

/** 256 colours whose lightness goes evenly from the page's to the strongest: equal steps look equal. */
function ramp(hue, dark) {
  const [first, last] = dark ? [0.24, 0.92] : [0.985, 0.33];
  return Array.from({ length: 256 }, (_, index) => {
    const share = index / 255;
    const chroma = dark ? 0.025 + 0.125 * Math.sin(Math.PI * 0.86 * share) : 0.005 + 0.15 * Math.sin(Math.PI * 0.72 * share);
    return fromOklch(first + (last - first) * share, chroma, hue + (dark ? -0.06 : 0.02) * share);
  });
}

const BLUE = 0.69, ORANGE = 0.12;
const ramps = {};

/** The colours of values from 0 to 1, and of those below 0, in the theme that is shown. */
function currentRamps() {
  const [red, green, blue] = colour("surface").match(/[\d.]+/g).map(Number);
  const dark = red + green + blue < 384;
  ramps[dark] ??= { above: ramp(BLUE, dark), below: ramp(ORANGE, dark) };
  return ramps[dark];
}

/** Values as an image of one pixel each, `most` being the strongest; columns in the given order. */
function toImage(values, rows, columns, most, order) {
  const { above, below } = currentRamps();
  const image = new ImageData(columns, rows);
  for (let row = 0; row < rows; row += 1) {
    for (let column = 0; column < columns; column += 1) {
      const value = values[row * columns + order[column]];
      const step = Math.round(255 * Math.min(1, Math.abs(value) / (most || 1)));
      const [red, green, blue] = (value < 0 ? below : above)[step];
      image.data.set([red, green, blue, 255], 4 * (row * columns + column));
    }
  }
  return image;
}

/** The largest absolute value. */
const largest = (values) => values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);

/** The mean of each column. */
function columnMeans(values, rows, columns) {
  const means = new Float32Array(columns);
  values.forEach((value, index) => { means[index % columns] += value / rows; });
  return means;
}

const inOrder = (count) => Array.from({ length: count }, (_, index) => index);
