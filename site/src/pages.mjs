// How the Markdown files of the repository become pages.
import { readFileSync, statSync } from 'node:fs';
import path from 'node:path';

const root = path.resolve('..');

/** The patterns, from the repository's root, of the files that are pages. */
export const pattern = ['*.md', 'docs/**/*.md'];

/** The repository's address: that of the Go module. */
export const repository = 'https://' + /^module (.+)$/m.exec(readFileSync('../go.mod', 'utf8'))[1];

/** id returns the name of a file's page: its path without .md. The README is the first page. */
export const id = (file) => (file === 'README.md' ? 'index' : file.replace(/\.md$/, ''));

const isPage = (file) => pattern.some((p) => path.matchesGlob(file, p));

/** sidebar makes the navigation from the lists of docs/README.md: a group for each heading. */
export function sidebar(text) {
	const groups = [{ label: 'Pawl', items: [{ slug: 'index', label: 'Pawl' }, { slug: 'docs/README' }] }];
	for (const line of text.split('\n')) {
		const group = /^##+ (.+)/.exec(line);
		if (group) {
			groups.push({ label: group[1], collapsed: true, items: [] });
			continue;
		}
		// The first cell of a row, or the item of a list up to its explanation.
		const item = /^\| (.+?) \||^[-*] (\[.+?\]\(.+?\)(?:, \[.+?\]\(.+?\))*)/.exec(line);
		for (const [, label, target] of (item?.[1] ?? item?.[2] ?? '').matchAll(/\[(.+?)\]\(([^)#]+\.md)\)/g)) {
			groups.at(-1).items.push({ label, slug: id(path.posix.join('docs', target)) });
		}
	}
	return groups.filter((g) => g.items.length);
}

/**
 * remark changes what differs from GitHub: the theme writes the title, links lead to pages or into the
 * repository, and images have the base in their address. Drawings become parts of the page, so that they
 * have its theme and their text can be selected.
 */
export function remark({ base, ref }) {
	/** address returns the address of a link in a file. */
	const address = (from, url) => {
		if (/^([a-z]+:|#)/.test(url)) return url;
		const [target, anchor] = url.split('#');
		const file = path.posix.join(path.posix.dirname(from), target).replace(/\/$/, '');
		const hash = anchor ? '#' + anchor : '';
		if (file.startsWith('docs/images/')) return base + file;
		if (file === 'dashboard/assets/icon.svg') return base + 'icon.svg';
		if (isPage(file)) return `${base}${id(file)}.html${hash}`;
		const folder = statSync(path.join(root, file), { throwIfNoEntry: false })?.isDirectory();
		return `${repository}/${folder ? 'tree' : 'blob'}/${ref}/${file}${hash}`;
	};
	return (tree, file) => {
		const from = path.relative(root, file.path);
		tree.children.splice(tree.children.findIndex((n) => n.type === 'heading' && n.depth === 1), 1);
		const walk = (node) => {
			const drawing = node.type === 'image' && path.posix.join(path.posix.dirname(from), node.url);
			if (drawing && drawing.startsWith('docs/images/drawings/')) {
				node.type = 'html';
				node.value = readFileSync(path.join(root, drawing), 'utf8').replace('@media (prefers-color-scheme: dark)', '[data-theme=dark]');
				return;
			}
			if (node.url) node.url = address(from, node.url);
			if (node.type === 'html') node.value = node.value.replace(/(src|href)="([^"]+)"/g, (_, name, url) => `${name}="${address(from, url)}"`);
			node.children?.forEach(walk);
		};
		walk(tree);
	};
}
