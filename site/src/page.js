// The keyboard reaches code and tables that scroll.
const reach = new ResizeObserver((all) => {
	for (const { target } of all) {
		if (target.scrollWidth > target.clientWidth) target.setAttribute('tabindex', '0');
		else target.removeAttribute('tabindex');
	}
});
document.querySelectorAll('main :is(pre, table)').forEach((e) => reach.observe(e));
