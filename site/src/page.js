// The keyboard reaches code and tables that scroll.
const reach = new ResizeObserver((all) => {
	for (const { target } of all) {
		if (target.scrollWidth > target.clientWidth) target.setAttribute('tabindex', '0');
		else target.removeAttribute('tabindex');
	}
});
document.querySelectorAll('main :is(pre, table)').forEach((e) => reach.observe(e));

// The diagrams are drawn in the page's theme.
const diagrams = [...document.querySelectorAll('pre.mermaid')];
if (diagrams.length) {
	const { default: mermaid } = await import('mermaid');
	const sources = diagrams.map((d) => d.textContent);
	const headings = [...document.querySelectorAll('main :is(h1, h2, h3)')];
	const draw = async () => {
		const { theme } = document.documentElement.dataset;
		const look = theme === 'dark' ? { theme: 'dark', themeVariables: { edgeLabelBackground: '#333' } } : { theme: 'default' };
		mermaid.initialize({ startOnLoad: false, ...look });
		for (const [i, diagram] of diagrams.entries()) {
			diagram.innerHTML = (await mermaid.render(`diagram-${i}`, sources[i])).svg;
			const above = headings.findLast((h) => h.compareDocumentPosition(diagram) & Node.DOCUMENT_POSITION_FOLLOWING);
			diagram.firstElementChild.setAttribute('aria-label', `Diagram: ${above.textContent}`);
			diagram.dataset.theme = theme;
		}
	};
	new MutationObserver(draw).observe(document.documentElement, { attributeFilter: ['data-theme'] });
	await draw();
}
