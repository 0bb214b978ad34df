// node build.mjs WIT SOURCE OUTPUT: a component of JavaScript, with componentize-js of the folder that NODE_MODULES names.
import { createRequire } from 'node:module';
import { readFile, writeFile } from 'node:fs/promises';
import { pathToFileURL } from 'node:url';

const [witPath, source, output] = process.argv.slice(2);
const require = createRequire(`${process.env.NODE_MODULES}/`);
const { componentize } = await import(pathToFileURL(require.resolve('@bytecodealliance/componentize-js')));
const { component } = await componentize(await readFile(source, 'utf8'), { witPath, worldName: 'tools' });
await writeFile(output, component);
