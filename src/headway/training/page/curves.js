/* Learning curves of a run. */
{
  const { curves, losses, metrics } = page;
  const colours = ["accent", "dev"];
  const lines = losses.map(([label, name], index) => ({ label, colour: colours[index], points: curves[name] }));
  if (lines.length) {
    find("curves").hidden = false;
    find("charts").append(lineChart("loss, nats a token", lines, { logarithmic: true }));
  }
  for (const [name, title] of Object.entries(metrics)) {
    find("charts").append(lineChart(`${title} on dev`, [{ label: title, colour: "dev", look: 1, points: curves[name] }]));
  }
  const more = { loss: "objective, nats a token", learning_rate: "learning rate", gradient_norm: "gradient norm", target_tokens_per_second: "target tokens a second" };
  for (const [name, title] of Object.entries(more).filter(([name]) => curves[name] && !losses.some(([, shown]) => shown === name))) {
    find("more-charts").append(lineChart(title, [{ label: title, colour: "accent", points: curves[name] }]));
  }
}
