// node build.mjs WIT SOURCE OUTPUT: a component of JavaScript, with componentize-js of the folder that NODE_MODULES names.
import { readFile, writeFile } from 'node:fs/promises';
import { pathToFileURL } from 'node:url';

const [witPath, source, output] = process.argv.slice(2);
// Its package exports modules alone, which are found only from a folder above them.
const library = `${process.env.NODE_MODULES}/@bytecodealliance/componentize-js/src/componentize.js`;
const { componentize } = await import(pathToFileURL(library));
const { component } = await componentize(await readFile(source, 'utf8'), { witPath, worldName: 'tools' });
await writeFile(output, component);
