import { docsSchema } from '@astrojs/starlight/schema';
import { defineCollection } from 'astro:content';
import { glob } from 'astro/loaders';
import { readFileSync } from 'node:fs';
import { id, pattern } from './pages.mjs';

const files = glob({ base: '..', pattern, generateId: ({ entry }) => id(entry) });

/** load loads the files with their first heading as the title. */
const load = (context) =>
	files.load({
		...context,
		parseData: (props) => context.parseData({ ...props, data: { title: /^# (.+)$/m.exec(readFileSync(props.filePath, 'utf8'))[1], ...props.data } }),
	});

export const collections = { docs: defineCollection({ loader: { ...files, load }, schema: docsSchema() }) };
