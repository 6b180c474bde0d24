// The documentation site: each Markdown file is a page at its own path, x/y.md at x/y.html.
import { unified } from '@astrojs/markdown-remark';
import starlight from '@astrojs/starlight';
import { defineConfig } from 'astro/config';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { id, remark, repository, sidebar } from './src/pages.mjs';

const out = process.env.SITE || 'dist';
const version = process.env.VERSION || 'unreleased';
const base = path.posix.join('/', process.env.BASE || '/', version, '/');

/** versions writes the list that every version's selector reads, and a page that leads to the newest. */
function versions() {
	const built = readdirSync(out, { withFileTypes: true }).filter((d) => d.isDirectory()).map((d) => d.name);
	const all = built.sort((a, b) => b.localeCompare(a, 'en', { numeric: true }));
	const newest = all.find((v) => v !== 'unreleased') ?? all[0];
	writeFileSync(path.join(out, 'versions.json'), JSON.stringify(all));
	writeFileSync(path.join(out, 'index.html'), `<!doctype html><title>Pawl</title><meta http-equiv="refresh" content="0; url=${newest}/index.html">`);
}

export default defineConfig({
	base,
	outDir: path.resolve(out, version),
	build: { format: 'file' },
	devToolbar: { enabled: false },
	markdown: {
		processor: unified({ remarkPlugins: [[remark, { base, ref: version === 'unreleased' ? 'HEAD' : version }]], smartypants: false }),
	},
	integrations: [
		starlight({
			title: 'Pawl',
			favicon: '/icon.svg',
			logo: { src: '../dashboard/assets/icon.svg', alt: '' },
			disable404Route: true,
			social: [{ icon: 'github', label: 'Repository', href: repository }],
			components: { SiteTitle: './src/SiteTitle.astro' },
			customCss: ['./src/site.css'],
			sidebar: sidebar(readFileSync('../docs/README.md', 'utf8')),
		}),
		{
			name: 'pawl',
			hooks: {
				'astro:config:setup': ({ injectScript }) => injectScript('page', `import '/src/page.js'`),
				'astro:build:done': versions,
			},
		},
	],
});
