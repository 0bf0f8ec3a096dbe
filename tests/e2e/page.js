#!/usr/bin/env node
// The page of a run without a browser: runs its script over a small document, so that a test sees what a reader sees.
//   page.js text REPORT.html                    what the page shows, hidden parts left out; ends with 1 if the script fails or draws
//   page.js text page.html STATUS.json          no number; the second form is the live page, whose style and script are next to it
//   page.js svg REPORT.html FIGURE FILE.svg     one chart as a file of its own: page.js svg run-demo/report.html eval docs/demo.svg
'use strict';
const fs = require('fs');
const path = require('path');
const vm = require('vm');
const VOID = new Set(['meta', 'link', 'br', 'img']);

class Node {
  constructor(name) { Object.assign(this, {name, attributes: {}, nodes: [], parent: null, style: {}}); }
  setAttribute(k, v) { this.attributes[k] = String(v); }
  append(...list) {
    for (const n of list) {
      if (n === undefined) throw new Error(`<${this.name}> takes undefined`);
      if (n instanceof Node) { n.remove(); n.parent = this; }
      this.nodes.push(n instanceof Node ? n : String(n));
    }
  }
  replaceChildren(...list) { this.nodes = []; this.append(...list); }
  remove() { if (this.parent) this.parent.nodes = this.parent.nodes.filter((n) => n !== this); this.parent = null; }
  get children() { return this.nodes.filter((n) => n instanceof Node); }
  get firstChild() { return this.nodes[0] || null; }
  get lastChild() { return this.nodes[this.nodes.length - 1] || null; }
  get textContent() { return this.nodes.map((n) => n instanceof Node ? n.textContent : n).join(''); }
  set textContent(text) { this.nodes = text === '' ? [] : [String(text)]; }
  get hidden() { return 'hidden' in this.attributes; }
  set hidden(on) { if (on) this.attributes.hidden = ''; else delete this.attributes.hidden; }
  set className(text) { this.attributes.class = text; }
  * all() { for (const n of this.children) { yield n; yield* n.all(); } }
  querySelectorAll(names) { return [...this.all()].filter((n) => names.split(',').includes(n.name)); }
  querySelector(name) { return this.querySelectorAll(name)[0] || null; }
}

// Strict: a tag that is not closed is an error, for it is one of our own files.
function parse(html) {
  const root = new Node('document'), open = [root];
  const unescape = (t) => t.replace(/&lt;/g, '<').replace(/&gt;/g, '>').replace(/&quot;/g, '"').replace(/&amp;/g, '&');
  for (let at = 0; at < html.length;) {
    const top = open[open.length - 1];
    if (top.name === 'script' || top.name === 'style') {
      const end = html.indexOf(`</${top.name}`, at);
      top.append(html.slice(at, end));
      at = end;
    }
    const tag = /<(\/?)(!?[a-zA-Z0-9]+)((?:\s+[^\s=>"]+(?:="[^"]*")?)*)\s*>/y;
    tag.lastIndex = at;
    const found = tag.exec(html);
    if (!found) {
      const next = html.indexOf('<', at + 1), text = html.slice(at, next < 0 ? undefined : next);
      if (text[0] === '<') throw new Error(`no tag: ${text.slice(0, 80)}`);
      open[open.length - 1].append(unescape(text));
      at += text.length;
      continue;
    }
    at = tag.lastIndex;
    const [, closes, name, attributes] = found;
    if (name[0] === '!') continue;
    if (closes) {
      if (open.pop().name !== name) throw new Error(`</${name}> closes another tag`);
      continue;
    }
    const e = new Node(name);
    for (const [, k, v] of attributes.matchAll(/([^\s=]+)(?:="([^"]*)")?/g)) e.attributes[k] = unescape(v || '');
    open[open.length - 1].append(e);
    if (!VOID.has(name)) open.push(e);
  }
  if (open.length !== 1) throw new Error(`<${open.pop().name}> is not closed`);
  return root;
}

async function run(file, status) {
  const root = parse(fs.readFileSync(file, 'utf8'));
  const ids = new Map([...root.all()].map((n) => [n.attributes.id, n])); // the script gives no element an id that it asks for
  const document = {
    title: '', hidden: false, getElementById: (id) => ids.get(id) || null,
    createElement: (name) => new Node(name), createElementNS: (space, name) => new Node(name),
  };
  const answer = {ok: true, json: async () => JSON.parse(fs.readFileSync(status, 'utf8'))};
  const world = vm.createContext({document, fetch: async () => answer, AbortSignal: {timeout: () => null}, setTimeout: () => 0});
  for (const script of root.querySelectorAll('script')) {
    if (script.attributes.type === 'application/json') continue;
    const linked = script.attributes.src && path.join(path.dirname(file), script.attributes.src);
    vm.runInContext(linked ? fs.readFileSync(linked, 'utf8') : script.textContent, world, {filename: linked || file});
  }
  if (status) await new Promise((done) => setImmediate(done));
  return root;
}

const BLOCKS = new Set(['h1', 'h2', 'p', 'tr', 'li', 'figcaption', 'caption', 'dl', 'pre', 'summary', 'section', 'svg', 'title', 'div']);
const LEFT_OUT = new Set(['head', 'script', 'style', 'noscript', 'clipPath']);
function textOf(e) {
  if (e.hidden || LEFT_OUT.has(e.name)) return '';
  const inner = (e.name === 'svg' ? `[${e.attributes['aria-label']}] ` : '') + e.nodes.map((n) => n instanceof Node ? textOf(n) : n).join(' ');
  return BLOCKS.has(e.name) ? `\n${inner}\n` : inner;
}

function check(root) {
  const page = root.querySelectorAll('div').find((n) => n.attributes.id === 'page');
  if (page.hidden) throw new Error('the page shows nothing: ' + root.querySelector('header').textContent);
  for (const e of root.all())
    if (e.name === 'svg' || ['path', 'rect', 'line', 'circle', 'text', 'polyline'].includes(e.name))
      for (const [k, v] of Object.entries(e.attributes))
        if (k !== 'aria-label' && /NaN|Infinity|undefined|null/.test(v)) throw new Error(`<${e.name} ${k}="${v.slice(0, 80)}">`);
  for (const svg of root.querySelectorAll('svg')) {
    const [, , , height] = svg.attributes.viewBox.split(' ').map(Number);
    const clipped = svg.parent.textContent.includes('drop clipped');
    for (const dot of svg.querySelectorAll('circle'))
      if (!clipped && !(dot.attributes.cy > 0 && dot.attributes.cy < height - 20)) throw new Error(`a point of "${svg.attributes['aria-label']}" lies outside its axes`);
  }
}

const escape = (t) => t.replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/"/g, '&quot;');
const write = (e) => e instanceof Node ? `<${e.name}${Object.entries(e.attributes).map(([k, v]) => ` ${k}="${escape(v)}"`).join('')}>${e.nodes.map(write).join('')}</${e.name}>` : escape(e);
// The chart with its names above it, in the page's colours.
function svgOf(root, id) {
  const figure = root.querySelectorAll('figure').find((f) => f.attributes.id === id), svg = figure && figure.querySelector('svg');
  if (!svg) throw new Error('no such chart; there are ' + root.querySelectorAll('figure').filter((f) => f.querySelector('svg')).map((f) => f.attributes.id).join(' '));
  const [, , width, height] = svg.attributes.viewBox.split(' ').map(Number), above = 26;
  const css = root.querySelector('style').textContent;
  const rules = [css.slice(0, css.indexOf('}') + 1), ...css.split('\n').filter((l) => /^(svg |\.s0|\.chance)/.test(l))].join('\n');
  const names = figure.querySelectorAll('li').map((li, i) => `<text class="${li.querySelector('i').attributes.class} name" x="${52 + 160 * i}" y="16">${escape(li.textContent)}</text>`).join('');
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 ${-above} ${width} ${height + above}" role="img"><title>${escape(svg.attributes['aria-label'])}</title>
<style>${rules}
text{font:11.5px system-ui,sans-serif}svg text.name{fill:currentColor;font-weight:600}</style>
<rect y="${-above}" width="${width}" height="${height + above}" fill="var(--bg)"/><g transform="translate(0 ${-above})">${names}</g>
${svg.nodes.map(write).join('\n')}
</svg>
`;
}

async function main([what, file, ...more]) {
  const root = await run(file, what === 'text' ? more[0] : undefined);
  check(root);
  if (what === 'svg') fs.writeFileSync(more[1], svgOf(root, more[0]));
  else process.stdout.write(textOf(root).replace(/[ \t]+/g, ' ').replace(/ ?\n[ \n]*/g, '\n'));
}
main(process.argv.slice(2)).catch((e) => { console.error(`page.js: ${e.stack}`); process.exitCode = 1; });
