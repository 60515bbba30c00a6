/* The level of the baseline and the error spent, by the number of proposals. */
const { charts } = JSON.parse(find("page").textContent);
for (const [title, points] of charts) {
  find("charts").append(lineChart(title, [{ label: title, colour: "accent", points }], { one: "proposal", many: "proposals" }));
}
