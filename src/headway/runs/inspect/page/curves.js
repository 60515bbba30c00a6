/* Learning curves of a run. */
{
  const words = (name) => name.replaceAll("_", " ");
  const { curves } = page;
  const losses = [["training", "loss", "accent", ""], ["dev", "dev_loss", "dev", "5 3"]]
    .filter(([, name]) => curves[name])
    .map(([label, name, colour, dashes]) => ({ label, colour, dashes, points: curves[name] }));
  const metrics = Object.keys(curves).filter((name) => name.startsWith("dev."));
  if (losses.length) {
    find("curves").hidden = false;
    find("charts").append(lineChart("loss", losses));
  }
  for (const name of metrics) {
    const title = words(name.slice("dev.".length));
    find("charts").append(lineChart(`${title} on dev`, [{ label: title, colour: "dev", points: curves[name] }]));
  }
  for (const name of ["learning_rate", "gradient_norm", "target_tokens_per_second"].filter((name) => curves[name])) {
    find("more-charts").append(lineChart(words(name), [{ label: words(name), colour: "accent", points: curves[name] }]));
  }
}
