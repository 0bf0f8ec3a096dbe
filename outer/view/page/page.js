// The page of a run. Live: it reads status.json every 2 s and draws it. As a report: it draws the object that is inside the page,
// once. No library, nothing from elsewhere. Names and texts are set as text, never as markup.
'use strict';
const EVERY_MS = 2000;
const STALE_S = 30;
const SVG = 'http://www.w3.org/2000/svg';
const CAUSES = [['compute', 'compute'], ['exchange', 'exchange'], ['wait', 'wait for others'], ['restart', 'restarts'],
  ['outage', 'aggregator unreachable'], ['evaluation', 'evaluation'], ['other', 'eval loss, checkpoints, rest']];
const TIMES = ['compute', 'encode', 'store', 'send', 'wait', 'fetch', 'apply', 'outage']; // of a round; colours p0 to p7
const LAYERS = [['payload', 'payload'], ['protobuf and gRPC', 'grpc'], ['HTTP/2 frames (model)', 'http2'], ['TLS records (model)', 'tls'],
  ['all layers', 'all'], ["kernel's sockets", 'socket']];
const $ = (id) => document.getElementById(id);

// ---- numbers as text ----
const has = (x) => typeof x === 'number' && isFinite(x);
const unitFor = (x) => [[1e12, 'TB'], [1e9, 'GB'], [1e6, 'MB'], [1e3, 'kB']].find(([u]) => x >= u) || [1, 'B'];
function bytes(x) {
  if (!has(x)) return '';
  const [unit, name] = unitFor(x);
  return (x / unit).toFixed(unit === 1 ? 0 : x / unit >= 100 ? 0 : 1) + ' ' + name;
}
function count(x) {
  if (!has(x)) return '';
  return x >= 1e9 ? (x / 1e9).toFixed(2) + ' G' : x >= 1e6 ? (x / 1e6).toFixed(2) + ' M' : x >= 1e4 ? (x / 1e3).toFixed(1) + ' k' : String(Math.round(x));
}
const pad = (v) => String(v).padStart(2, '0');
function time(s) {
  if (!has(s)) return '';
  s = Math.round(s);
  if (s >= 360000) return Math.floor(s / 86400) + ' d ' + Math.floor(s % 86400 / 3600) + ' h';
  const h = Math.floor(s / 3600), m = Math.floor(s % 3600 / 60);
  return h ? h + ':' + pad(m) + ':' + pad(s % 60) : m + ':' + pad(s % 60);
}
const digits = (x) => has(x) ? Math.round(x).toLocaleString('en-US') : '';
const percent = (v) => has(v) ? (100 * v).toFixed(1) + ' %' : '';
// Of any number of values: a call takes some ten thousand arguments.
const least = (list) => list.reduce((a, v) => Math.min(a, v), Infinity), most = (list) => list.reduce((a, v) => Math.max(a, v), -Infinity);
const fixed = (x, places) => has(x) ? x.toFixed(places) : '';
const clock = (t) => { const d = new Date(t * 1000);
  return `${d.getFullYear()}-${pad(d.getMonth() + 1)}-${pad(d.getDate())} ${pad(d.getHours())}:${pad(d.getMinutes())}:${pad(d.getSeconds())}`; };

// ---- elements ----
function make(name, attributes, ...children) {
  const e = document.createElement(name);
  for (const [k, v] of Object.entries(attributes || {})) e.setAttribute(k, v);
  e.append(...children);
  return e;
}
function shape(name, attributes, text) {
  const e = document.createElementNS(SVG, name);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  if (text !== undefined) e.textContent = text;
  return e;
}
const color = (i) => 's' + i % 8;
const element = (id) => typeof id === 'string' ? $(id) : id;
const section = (id, shown) => { $(id).hidden = !shown; return shown; };
// With less than a week left, or none, it is in red.
const certificate = (x) => [!has(x.certificate_days) ? '' : x.certificate_days < 0 ? 'EXPIRED' : x.certificate_days + ' days', x.certificate_days < 7 ? 'bad' : ''];
const called = (x) => x.role === 'site' || x.role === 'seen' ? 'site ' + x.name : x.name;
// n figures in an element; those that are there stay.
function figures(id, n) {
  while ($(id).children.length > n) $(id).lastChild.remove();
  while ($(id).children.length < n) $(id).append(make('figure'));
  return [...$(id).children];
}
const say = (id, text) => { if ($(id).textContent !== text) $(id).textContent = text; };

// columns: [heading, number?]; rows: arrays of text, or of [text, class]. The first cell of a row is its name.
function table(id, columns, rows, marks) {
  const t = element(id);
  t.querySelectorAll('thead,tbody').forEach((e) => e.remove());
  const head = make('tr');
  for (const [name, number] of columns) head.append(make('th', {scope: 'col', class: number ? 'n' : ''}, name));
  const body = make('tbody');
  rows.forEach((row, r) => {
    const line = make('tr');
    row.forEach((cell, i) => {
      const [text, kind] = Array.isArray(cell) ? cell : [cell, ''];
      const e = i ? make('td', {'data-l': columns[i][0], class: (columns[i][1] ? 'n ' : '') + (kind || '') + (text ? '' : ' empty')}, text)
        : make('th', {scope: 'row'});
      if (!i) {
        if (marks) e.append(make('i', {class: color(marks[r]), 'aria-hidden': 'true'}));
        e.append(text);
      }
      line.append(e);
    });
    body.append(line);
  });
  t.append(make('thead', {}, head), body);
}

// ---- charts ----
const W = 520, H = 210, L = 52, R = 14, T = 8, B = 30;
function ticks(lo, hi, count) {
  const raw = (hi - lo) / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw) || raw;
  const out = [];
  for (let v = Math.ceil(lo / step - 1e-9) * step; v <= hi + step * 1e-9; v += step) out.push(v);
  return [out, step];
}
const tickText = (v, step) => Math.abs(v) >= 1e4 ? count(v) : step < 1e-4 && v ? v.toExponential(1) : v.toFixed(Math.max(0, Math.min(4, Math.ceil(-Math.log10(step) - 1e-9))));
function frame(svg, box, xName) {
  const x = (v) => L + (v - box.x0) / (box.x1 - box.x0) * (W - L - R), y = (v) => H - B - (v - box.y0) / (box.y1 - box.y0) * (H - T - B);
  const [ys, yStep] = ticks(box.y0, box.y1, 4), [xs, xStep] = ticks(box.x0, box.x1, 6);
  for (const v of ys) svg.append(shape('line', {class: 'rule', x1: L, x2: W - R, y1: y(v), y2: y(v)}), shape('text', {x: L - 6, y: y(v) + 4, 'text-anchor': 'end'}, tickText(v, yStep)));
  for (const v of xs) if (xStep >= 1 || box.fraction) svg.append(shape('text', {x: x(v), y: H - B + 16, 'text-anchor': 'middle'}, tickText(v, xStep)));
  svg.append(shape('line', {class: 'axis', x1: L, x2: W - R, y1: H - B, y2: H - B}), shape('text', {x: W - R, y: H - 2, 'text-anchor': 'end'}, xName));
  return [x, y];
}
function canvas(figure, title, summary, legend, note) {
  figure.replaceChildren(make('figcaption', {}, title));
  if (note) figure.append(make('p', {class: 'note'}, note));
  if (legend) {
    const list = make('ul', {class: 'legend'});
    for (const [c, name, value] of legend) list.append(make('li', {}, make('i', {class: c, 'aria-hidden': 'true'}), name + ' ', make('b', {}, value)));
    figure.append(list);
  }
  const svg = shape('svg', {viewBox: `0 0 ${W} ${H}`, role: 'img', 'aria-label': title + ': ' + summary});
  figure.append(svg);
  return svg;
}
// Means over the values within half a window to both sides.
function smoothed(points) {
  const half = Math.floor((points.length / 25 + 1) / 2), sum = [0], known = [0];
  points.forEach(([, y], i) => { sum.push(sum[i] + (has(y) ? y : 0)); known.push(known[i] + (has(y) ? 1 : 0)); });
  return points.map(([x], i) => {
    const from = Math.max(0, i - half), to = Math.min(points.length, i + half + 1), n = known[to] - known[from];
    return [x, n ? (sum[to] - sum[from]) / n : null];
  });
}
// What the axis shows. The first drop of a loss would squeeze all the rest: it may be clipped, where enough is left.
function boxOf(series, o) {
  const all = series.flatMap((s) => s.points).filter((p) => has(p[1])), x1 = most(all.map((p) => p[0]));
  const late = (s) => s.points.filter((p) => has(p[1]) && p[0] >= 0.08 * x1);
  const clips = o.drop && series.every((s) => late(s).length >= 5);
  const ys = (clips ? series.flatMap(late) : all).map((p) => p[1]);
  const box = {x0: least(all.map((p) => p[0])), x1, y0: Math.min(least(ys), o.zero ? 0 : Infinity), y1: most(ys), fraction: o.fraction};
  box.clipped = clips && all.some((p) => p[1] > box.y1);
  if (box.x1 === box.x0) box.x1 = box.x0 + 1;
  const pad = (box.y1 - box.y0) * 0.06 || Math.abs(box.y1) * 0.1 || 1;
  if (!o.zero || box.y0 < 0) box.y0 -= pad;
  box.y1 += pad;
  return box;
}
let clipCount = 0; // of this page: the ids of its clip paths differ
// series: [{name, c, points: [[x, y]..]}]; a y that is no number is a gap. o: zero, the axis begins at 0; drop, its first part may be
// clipped; smooth, means over many points before all points, faint; fraction, x is no count; dots, each point is marked; note.
function lines(id, title, xName, series, places, o = {}) {
  series = series.filter((s) => s.points.some((p) => has(p[1])));
  const figure = element(id);
  if (!series.length) { figure.replaceChildren(); return; }
  const box = boxOf(series, o), newest = (s) => s.points.filter((p) => has(p[1])).pop()[1].toFixed(places);
  const svg = canvas(figure, title, series.map((s) => `${s.name} ${newest(s)}`).join(', '), series.map((s) => [s.c, s.name, newest(s)]),
    [o.note, box.clipped ? 'Initial drop clipped.' : ''].filter(Boolean).join(' '));
  const [x, y] = frame(svg, box, xName), clip = 'clip' + clipCount++;
  const inside = shape('clipPath', {id: clip});
  inside.append(shape('rect', {x: L - 4, y: T - 4, width: W - L - R + 8, height: H - T - B + 8}));
  svg.append(inside);
  const draw = (s, kind, points) => svg.append(shape('path', {class: `${kind} ${s.c}`, 'clip-path': `url(#${clip})`, d: points.map(([a, b], i) =>
    has(b) ? (i && has(points[i - 1][1]) ? 'L' : 'M') + x(a).toFixed(1) + ' ' + y(b).toFixed(1) : '').join('')}));
  if (o.smooth) for (const s of series) draw(s, 'raw', s.points);
  for (const s of [...series].reverse()) {
    const known = s.points.filter((p) => has(p[1]));
    draw(s, 'line', o.smooth ? smoothed(s.points) : s.points);
    for (const [a, b] of known.length === 1 || o.dots && known.length < 40 ? known : []) {
      const dot = shape('circle', {class: 'dot ' + s.c, cx: x(a).toFixed(1), cy: y(b).toFixed(1), r: 3});
      dot.append(shape('title', {}, `${s.name} ${b.toFixed(4)} at ${a}`));
      svg.append(dot);
    }
  }
}
// bars: [{from, to, what, parts: [[class, value, what, predicted]..]}]; the parts are next to one another, or stacked
function bars(figure, title, xName, list, c, stacked) {
  if (!list.length) { figure.replaceChildren(); return; }
  const tall = (b) => stacked ? [b.parts.reduce((a, p) => a + p[1], 0)] : b.parts.flatMap((p) => [p[1], p[3] || 0]);
  const tallest = most(list.flatMap(tall)) || 1;
  const box = {x0: list[0].from - 0.6, x1: Math.max(list[list.length - 1].to, list[0].from + 9) + 0.6, y0: 0, y1: tallest * 1.06};
  const svg = canvas(figure, title, list[list.length - 1].what);
  svg.setAttribute('class', c);
  const [x, y] = frame(svg, box, xName);
  for (const b of list) {
    const left = x(b.from - 0.42), w = Math.max(0.6, (x(b.to + 0.42) - left) / (stacked ? 1 : b.parts.length));
    let below = 0;
    b.parts.forEach(([kind, v, what, predicted], i) => {
      const at = left + (stacked ? 0 : i * w);
      const r = shape('rect', {class: kind, x: at, width: Math.max(0.5, w - 0.5), y: y(below + v), height: Math.max(0, y(below) - y(below + v))});
      r.append(shape('title', {}, what || b.what));
      svg.append(r);
      if (has(predicted)) svg.append(shape('line', {class: 'mark', x1: at, x2: at + w, y1: y(predicted), y2: y(predicted)}));
      below += stacked ? v : 0;
    });
  }
}

// ---- sections ----
const firstOf = (points) => points.length ? points[0][1] : null, lastOf = (points) => points.length ? points[points.length - 1][1] : null;
const exchanges = (x) => x.rounds_all && x.rounds_all.length > 0;
function reportTiles(s) {
  const site = s.sites.find(exchanges) || s.sites[0], alone = s.sites.find((x) => x.role === 'alone' && x !== site), list = [];
  if (!site) return list;
  const e = site.eval_losses, steps = (site.losses[site.losses.length - 1] || [0])[0], sent = site.totals.up;
  if (e.length) list.push([fixed(lastOf(e), 3), `eval loss${site.role === 'alone' ? '' : ', all sites together'} (${fixed(firstOf(e), 3)} at start)`]);
  if (alone) list.push([fixed(lastOf(alone.eval_losses), 3), 'eval loss of one site alone']);
  list.push([site.tokens > 0 ? count(site.tokens) : '', 'tokens per site'], [count(site.parameters), 'parameters']);
  if (exchanges(site)) list.push([bytes(sent), 'sent by each site']);
  if (sent > 0 && site.parameters * steps > 0) list.push([`${fixed(4 * site.parameters * steps / sent, 0)} x`, 'less than f32 gradients each step']);
  list.push([time(site.wall_s), 'wall time']);
  return list;
}
function liveTiles(s) {
  const sites = s.sites, sum = (k) => sites.reduce((a, x) => a + (has(x[k]) ? x[k] : 0), 0);
  const known = (k) => sites.map((x) => x[k]).filter(has);
  const rounds = s.aggregators[0] || sites[0] || {}, eta = known('eta_s'), sync = known('next_sync_s');
  const list = [];
  if (has(rounds.rounds_planned)) list.push([`${rounds.rounds} / ${rounds.rounds_planned}`, s.aggregators.length ? 'rounds committed' : 'rounds']);
  if (sites.length === 1) list.push([`${count(sites[0].step)} / ${count(sites[0].steps)}`, 'steps']);
  list.push([count(sum('tokens_per_second')), sites.length > 1 ? 'tokens/s, all sites' : 'tokens/s']);
  if (sync.length) list.push([time(least(sync)), 'to the next sync']);
  if (eta.length) list.push([time(most(eta)), 'time left']);
  list.push([bytes(sum('up_bytes')), 'payload up'], [bytes(sum('down_bytes')), 'payload down']);
  return list;
}
function tiles(s) {
  const list = (s.report ? reportTiles : liveTiles)(s).filter(([v]) => v);
  $('tiles').replaceChildren(...list.map(([v, name]) => make('div', {}, make('dt', {}, name), make('dd', {}, v))));
}
function stateOf(x) {
  if (x.waited_for) return [`${x.state} (${time(x.state_s)})`, 'bad'];
  if (x.trains) return [x.state, x.state === 'trains' ? 'good' : 'warn'];
  return [x.state + (x.state_s > 1 && x.state !== 'done' && !/\d s/.test(x.state) ? ` (${time(x.state_s)})` : ''), x.state === 'done' ? '' : 'warn'];
}
function sitesTable(s) {
  const columns = [['site'], ['state'], ['step', 1], ['loss', 1], ['tokens/s', 1], ['round', 1], ['up', 1], ['down', 1], ['next sync', 1], ['time left', 1], ['certificate', 1]];
  const rows = s.sites.map((x) => [called(x), stateOf(x), has(x.step) ? `${x.step} / ${x.steps}` : '', fixed(x.loss, 4), count(x.tokens_per_second),
    has(x.rounds_planned) ? `${x.rounds} / ${x.rounds_planned}` : '', bytes(x.up_bytes), bytes(x.down_bytes), ...(s.report ? ['', ''] : [time(x.next_sync_s), time(x.eta_s)]),
    certificate(x)]);
  const used = columns.map((c, i) => i < 3 || rows.some((r) => Array.isArray(r[i]) ? r[i][0] : r[i]));
  table('sites', columns.filter((c, i) => used[i]), rows.map((r) => r.filter((c, i) => used[i])), s.sites.map((x, i) => i));
}
const seriesOf = (s, key) => s.sites.map((x, i) => ({name: called(x), c: color(i), points: x[key] || []}));
// Sites with the same points are one line that names them all: it would hide the others.
const together = (series) => series.reduce((list, s) => {
  const same = s.points.length && list.find((x) => JSON.stringify(x.points) === JSON.stringify(s.points));
  if (same) same.name += ` and ${s.name}`; else list.push({...s});
  return list;
}, []);
function losses(s) {
  say('note-loss', s.report ? 'Training loss of each site on its own text, smoothed; the faint line is every step. Eval loss: the same text for all, seen by none; after a round all sites hold the same parameters, and their points coincide. Nats per target.'
    : s.private ? 'This run has privacy: no loss of a single site is shown, only what is evaluated on held-out text.'
    : 'Training loss of each site at its steps; eval loss of the outer parameters on held-out text. Nats per target.');
  lines('loss', 'Training loss by site', 'step', seriesOf(s, 'losses'), 4, {smooth: s.report, drop: s.report});
  lines('eval', 'Eval loss', 'step', together(seriesOf(s, 'eval_losses')), 4, {dots: s.report});
  section('s-loss', $('loss').firstChild || $('eval').firstChild || s.private);
}
function training(s) {
  lines('norm', 'Gradient norm', 'step', seriesOf(s, 'gradient_norms'), 3, {zero: true, smooth: true, drop: true});
  lines('rate', 'Learning rate', 'step', seriesOf(s, 'learning_rates'), 6, {zero: true});
  lines('speed', 'Tokens per second', 'minutes', seriesOf(s, 'speeds'), 0, {zero: true, smooth: true, fraction: true});
  const [unit, name] = unitOf(s.sites.flatMap((x) => [lastOf(x.bytes_up || []), lastOf(x.bytes_down || [])]));
  const moved = (key, way, kind) => seriesOf(s, key).map((x) => ({name: `${x.name}, ${way}`, c: kind + x.c, points: x.points.map(([a, b]) => [a, b / unit])}));
  lines('moved', `Bytes so far, ${name}`, 'step', [...moved('bytes_up', 'up', ''), ...moved('bytes_down', 'down', 'pale ')], 1, {zero: true});
  section('s-training', [...$('s-training').querySelectorAll('figure')].some((f) => f.firstChild));
}
// Accuracies by round, and what the model writes after the prompts.
function evaluation(s) {
  const list = s.sites.flatMap((x) => (x.tasks || []).map((t) => ({...t, site: called(x)})));
  const texts = s.sites.flatMap((x) => (x.probes || []).filter((p) => has(p.round)).map((p) => ({...p, site: called(x)})));
  section('s-evaluation', list.length || texts.length);
  section('tasks', list.length);
  const several = new Set([...list, ...texts].map((t) => t.site)).size > 1, named = (t) => several ? `${t.name}, ${t.site}` : t.name;
  table('tasks', [['task'], ['accuracy', 1], ['by length', 1], ['chance', 1], ['questions', 1], ['after round', 1]],
    list.map((t) => [named(t), percent(t.accuracy), percent(t.accuracy_norm), percent(t.chance), count(t.questions), String(t.round)]), list.map((t, i) => i));
  const at = figures('task-charts', list.length);
  list.forEach((t, i) => {
    const chance = t.by_round.map(([x]) => [x, t.chance]);
    lines(at[i], `${named(t)}: accuracy by round`, 'round', [{name: 'accuracy', c: color(i), points: t.by_round},
      {name: 'by length', c: 'pale ' + color(i), points: t.by_round_norm}, {name: 'chance', c: 'chance', points: chance}], 3, {zero: true, dots: s.report});
  });
  $('probes').replaceChildren(...texts.map((p) => make('figure', {class: 'probe'}, make('figcaption', {}, `${several ? p.site + ', ' : ''}after round ${p.round}`),
    make('p', {}, make('b', {}, p.prompt), p.text))));
}
function spent(s) {
  const list = s.sites.filter((x) => x.spent_s && x.spent_s.all > 0);
  section('s-spent', list.length);
  const share = (x, k) => x.spent_s[k] / x.spent_s.all;
  $('spent-bars').replaceChildren(make('ul', {class: 'legend', 'aria-hidden': 'true'}, ...CAUSES.map(([k, name]) => make('li', {}, make('i', {class: k}), name))),
    ...list.flatMap((x) => {
      const bar = make('div', {class: 'bar', 'aria-hidden': 'true'});
      for (const [k, name] of CAUSES) {
        const part = make('span', {class: k, title: `${name} ${percent(share(x, k))}`});
        part.style.width = 100 * share(x, k) + '%';
        bar.append(part);
      }
      return [make('div', {class: 'barname', 'aria-hidden': 'true'}, `${called(x)}: goodput ${percent(share(x, 'compute'))}`), bar];
    }));
  table('spent', [['site'], ...CAUSES.map(([, name]) => [name, 1]), ['all', 1]],
    list.map((x) => [called(x), ...CAUSES.map(([k]) => percent(share(x, k))), time(x.spent_s.all)]), list.map((x) => s.sites.indexOf(x)));
}
// Rounds with their place on the axis: their number, with fragments their place in time. A report has means of rounds that are alike.
function roundsOf(x) {
  const list = x.rounds_all || x.last_rounds, fragments = list.some((r) => r.fragment > 0);
  return list.map((r, i) => ({from: fragments ? i : r.round, to: fragments ? i : r.round, count: 1, ...r, fragments}));
}
const roundsName = (list) => list.some((r) => r.fragment > 0) ? 'rounds of all fragments, in order' : 'round';
const roundName = (r) => r.count > 1 ? `rounds ${r.from} to ${r.to}` : `round ${r.round}${r.fragments ? ' of fragment ' + r.fragment : ''}`;
const middle = (r) => (r.from + r.to) / 2;
const unitOf = (values) => unitFor(most([0, ...values.filter(has)]));
function byteBars(s) {
  const list = s.sites.filter((x) => roundsOf(x).length && x.rounds > 0), group = most([1, ...list.map((x) => most(roundsOf(x).map((r) => r.count)))]);
  say('note-bytes', !s.report ? 'Payload of the last rounds: contributions up in full colour, aggregates down pale.'
    : 'Payload of contributions up (full colour) and aggregates down (pale) as the link counted it; the line across a bar is what was predicted from the configuration before the run.'
      + (group > 1 ? ` A bar is the mean of up to ${group} rounds; full-precision rounds have their own.` : ''));
  section('s-bytes', list.length);
  figures('bytes', list.length).forEach((figure, k) => {
    const x = list[k], rounds = roundsOf(x), [unit, name] = unitOf(rounds.flatMap((r) => [r.up_bytes, r.down_bytes]));
    const part = (r, way) => [way, r[way + '_bytes'] / unit, !s.report ? '' : `${roundName(r)}: ${way} ${digits(r[way + '_bytes'])} B counted, ${digits(r[way + '_bytes_predicted'])} B predicted`,
      has(r[way + '_bytes_predicted']) ? r[way + '_bytes_predicted'] / unit : undefined];
    bars(figure, `${s.report ? called(x) : 'Site ' + x.name}, ${name} by round`, roundsName(rounds), rounds.map((r) => ({from: r.from, to: r.to, parts: [part(r, 'up'), part(r, 'down')],
      what: `${roundName(r)}: ${bytes(r.up_bytes)} up, ${bytes(r.down_bytes)} down`})), color(s.sites.indexOf(x)));
  });
}
// Two charts a site: with computing, and the exchange alone.
function times(s) {
  const list = s.sites.filter((x) => x.role === 'site' && exchanges(x));
  if (!section('s-times', list.length)) return;
  $('times-legend').replaceChildren(...TIMES.map((name, k) => make('li', {}, make('i', {class: 'p' + k, 'aria-hidden': 'true'}), name)));
  $('hidden-times').replaceChildren(...list.filter((x) => x.totals.hidden_s > 0).map((x) => { const {hidden_s: h, exposed_s: e} = x.totals;
    return make('p', {class: 'note'}, `${called(x)}: of ${fixed(h + e, 1)} s of exchanges ${fixed(h, 1)} s (${percent(h / (h + e))}) ran during training; training waited for the other ${fixed(e, 1)} s.`); }));
  figures('times', 2 * list.length).forEach((figure, k) => {
    const x = list[k >> 1], first = k & 1, rounds = roundsOf(x), sum = (r) => r.ms.slice(first).reduce((a, v) => a + v, 0);
    const [unit, name] = most(rounds.map(sum)) >= 2000 ? [1000, 'seconds'] : [1, 'ms'];
    bars(figure, `${called(x)}, ${name}, ${first ? 'exchange only' : 'with computing'}`, roundsName(rounds), rounds.map((r) => ({from: r.from, to: r.to, what: `${roundName(r)}: ${fixed(sum(r), 1)} ms`,
      parts: TIMES.map((t, i) => ['part p' + i, r.ms[i] / unit, `${roundName(r)}: ${t} ${fixed(r.ms[i], 1)} ms`]).slice(first)})), '', true);
  });
}
function ledger(s) {
  const list = s.all.filter((x) => x.ledger || x.ledger_missing !== undefined);
  const signed = (v) => (v < 0 ? '' : '+') + fixed(v, 3) + ' %', apart = (d) => d.socket ? 100 * (d.all - d.socket) / d.socket : 0;
  section('s-ledger', list.length);
  $('ledger').replaceChildren(...list.map((x) => {
    if (!x.ledger) return make('div', {}, make('p', {}, make('b', {}, called(x))), make('p', {class: 'soft'}, x.ledger_missing));
    const {up, down} = x.ledger, t = make('table', {}, make('caption', {}, called(x))), wrong = up.wrong + down.wrong;
    table(t, [['bytes'], ['up, predicted', 1], ['up, counted', 1], ['down, predicted', 1], ['down, counted', 1]],
      LAYERS.map(([name, k]) => [name, k === 'payload' ? digits(up.predicted) : '', digits(up[k]), k === 'payload' ? digits(down.predicted) : '', digits(down[k])]));
    const note = make('p', {class: 'note'}, `Sum of the layers, compared with the kernel's sockets: ${signed(apart(up))} up, ${signed(apart(down))} down.`);
    if (wrong) note.append(make('b', {}, ` ${wrong} transfers are not as predicted: atoll ledger names them.`));
    if (up.resent || down.resent) note.append(` Sent again: ${digits(up.resent)} bytes up, ${digits(down.resent)} down.`);
    if (up.lost || down.lost) note.append(` Sent by processes that were killed before they booked it: ${digits(up.lost)} bytes up, ${digits(down.lost)} down.`);
    return make('div', {}, make('div', {class: 'wide'}, t), note);
  }));
}
function wan(s) {
  section('s-wan', s.wan);
  $('wan').replaceChildren(...(s.wan || []).map((n) => {
    const t = make('table', {}, make('caption', {}, `${n.source}, seed ${n.seed}`));
    const keys = ['packets', 'bytes', 'arrived', 'queue', 'lost', 'outage', 'twice', 'late', 'queue_peak'];
    table(t, [['from'], ['to'], [n.relay ? 'pieces' : 'packets', 1], ['bytes', 1], ['arrived', 1], ['dropped by a full queue', 1], ['lost', 1], ['in an outage', 1], ['twice', 1],
      ['overtaken', 1], ['longest queue, bytes', 1]], n.rows.filter((r) => r.from !== undefined).map((r) => [r.from, r.to, ...keys.map((k) => digits(r[k]))]));
    return make('div', {}, make('div', {class: 'wide'}, t), ...n.rows.filter((r) => r.from === undefined).map((r) => make('p', {class: 'bad'},
      `${digits(r.packets)} packets of ${r.place} were missed: this machine was too slow, the figures are not those of the topology.`)));
  }));
}
function outer(s) {
  const places = figures('committed', 2 * s.aggregators.length);
  s.aggregators.forEach((a, i) => {
    const rounds = roundsOf(a), name = a.name[0].toUpperCase() + a.name.slice(1);
    bars(places[2 * i], `${name}: seconds from the first contribution to the commit`, roundsName(rounds), rounds.map((r) => ({from: r.from, to: r.to, parts: [[r.included < r.sites ? 'miss' : 'up', r.waited_s || 0]],
      what: `${roundName(r)}: ${fixed(r.waited_s, 1)} s, ${r.included} of ${fixed(r.sites, 0)} sites`})), 's4');
    lines(places[2 * i + 1], `${s.aggregators.length > 1 ? name + ': norm' : 'Norm'} of the outer momentum`, roundsName(rounds), [{name: 'momentum', c: 's7', points: rounds.map((r) => [middle(r), r.momentum_norm])}], 3, {zero: true});
  });
  const of = (k) => s.sites.map((x, i) => ({name: called(x), c: color(i), points: roundsOf(x).map((r) => [middle(r), r[k]])}));
  const draw = (id, title, key, places, note) => lines(id, title, 'round', of(key), places, {zero: true, dots: s.report, note});
  draw('rho', 'Rho: cosine of the mean delta and the one before', 'rho', 3, 'Near 1 the momentum amplifies them: lower outer.lr or take more steps a round.');
  draw('agreement', "Agreement: cosine of a site's delta and the mean delta", 'agreement', 3, 'It falls as the sites drift apart.');
  draw('gain', 'Gain: applied outer step over the outer learning rate', 'gain', 3, 'Length of the applied step along the mean delta.');
  draw('residual', "Residual ratio: residual over the site's delta", 'residual_ratio', 4, 'Above outer.residual_reset the next round is sent in full precision.');
  say('note-outer', (s.report ? '' : 'The last rounds. ') + (s.aggregators.some((a) => roundsOf(a).length) ? 'Red: a site is missing from the round.' : ''));
  section('s-outer', [...$('s-outer').querySelectorAll('figure')].some((f) => f.firstChild));
}
function counted(s) {
  const list = s.aggregators.filter((a) => a.counted), share = (x, all) => percent(all > 0 ? x / all : 0);
  section('s-counted', list.length);
  $('counted').replaceChildren(...list.flatMap((a) => {
    const c = a.counted, t = make('table', {}, make('caption', {}, a.name));
    table(t, [['site'], ['rounds', 1], ['of all rounds', 1], ['tokens', 1], ['of all tokens', 1], ['']], c.sites.map((x) => ['site ' + x.name, digits(x.rounds), share(x.rounds, c.rounds),
      digits(x.tokens), share(x.tokens, c.tokens), x.ends ? 'all of its data counted' : x.rounds ? 'its last work is missing' : 'none of its data counted']));
    return [make('div', {class: 'wide'}, t), ...(a.ended_short ? [make('p', {class: 'note'}, `${a.name}: ${a.ended_short}`)] : [])];
  }));
}
// One row a quantity, one column a directory.
function numbers(s) {
  if (!section('s-numbers', s.report && s.sites.length)) return;
  const stood = (x) => x.spent_s ? x.spent_s.exchange + x.spent_s.wait + x.spent_s.outage : 0;
  const spent = (f) => (x) => exchanges(x) && x.spent_s && x.spent_s.all > 0 ? percent(f(x)) : '', moved = (k) => (x) => exchanges(x) && x.totals[k] > 0 ? bytes(x.totals[k]) : '';
  const rows = [['steps', (x) => x.losses.length ? digits(x.losses[x.losses.length - 1][0]) : ''], ['tokens/s', (x) => x.losses.length ? digits(x.tokens_per_second_mean) : ''],
    ['training loss, last step', (x) => fixed(lastOf(x.losses), 4)], ['eval loss, first', (x) => fixed(firstOf(x.eval_losses), 4)], ['eval loss, last', (x) => fixed(lastOf(x.eval_losses), 4)],
    ['payload up', moved('up')], ['payload up, predicted', moved('up_predicted')], ['payload down', moved('down')], ['payload down, predicted', moved('down_predicted')],
    ['up with TLS and framing', moved('wire_up')], ['down with TLS and framing', moved('wire_down')], ['time computing', spent((x) => x.spent_s.compute / x.spent_s.all)],
    ['time in exchanges', spent((x) => stood(x) / x.spent_s.all)], ['of that, waiting for others', spent((x) => x.spent_s.wait / (stood(x) || 1))],
    ['of that, aggregator unreachable', spent((x) => x.spent_s.outage / (stood(x) || 1))]].map(([name, f]) => [name, ...s.sites.map(f)]);
  table('numbers', [[''], ...s.sites.map((x) => [called(x), 1])], rows.filter((r) => r.slice(1).some(Boolean)));
}
// The kernel's bound, which is 16 s where no time server sets the clock.
const clockError = (x) => !has(x) ? '' : x >= 16 ? 'unknown: no time server' : fixed(x, 3) + ' s';
function health(s) {
  const all = [...s.aggregators, ...s.sites], columns = [['machine'], ['certificate', 1], ['disk free', 1], ['clock, to the aggregator', 1], ['clock error', 1], ['starts', 1], ['newest record', 1]];
  const rows = all.map((x) => [called(x),
    certificate(x), [bytes(x.disk_free_bytes), x.disk_free_bytes < 1e9 ? 'bad' : ''],
    [has(x.clock_aggregator_s) ? fixed(x.clock_aggregator_s, 3) + ' s' : '', Math.abs(x.clock_aggregator_s) > 2 ? 'bad' : ''], clockError(x.clock_error_s), has(x.starts) && x.starts ? String(x.starts) : '', time(x.record_age_s) + ' ago']);
  const shown = s.report ? 6 : 7; // a report has no now
  table('health', columns.slice(0, shown), rows.map((r) => r.slice(0, shown)));
}
function events(s) {
  const list = s.report ? [...s.events].reverse() : s.events, began = list.length ? list[0].t : 0;
  const rows = list.map((e) => [s.report ? time(e.t - began) : clock(e.t), e.who, e.text]);
  if (s.events_left_out) rows.splice(rows.length >> 1, 0, ['', '', `${s.events_left_out} more`]);
  $('events').querySelector('caption').textContent = s.report ? 'Since the first of them' : 'The newest first';
  table('events', [[s.report ? 'after' : 'time'], ['where'], ['what']], rows);
}
function final(s) {
  const rows = s.all.flatMap((x) => Object.entries(x.digests || {}).map(([name, hex]) => [called(x), name, [hex, 'code']]));
  if (section('s-final', rows.length)) table('final', [[''], ['of'], ['SHA-256']], rows);
}
function program(s) {
  const list = s.all.filter((x) => x.config !== undefined);
  if (!section('s-program', list.length)) return;
  table('program', [[''], ['version'], ['commit'], ['compiler'], ['device'], ['ranks', 1], ['threads', 1]], list.map((x) => [called(x), x.version, x.commit, x.compiler, x.device, digits(x.ranks), digits(x.threads)]));
  $('commands').textContent = list.map((x) => x.command).filter(Boolean).join('\n');
  const configured = list.filter((x) => x.config);
  if (configured.length) say('changed', `What ${called(configured[0])} has that is not the default:\n${chosen(configured[0].config)}`);
  $('configuration').replaceChildren(...configured.map((x) => make('details', {}, make('summary', {}, `All settings of ${called(x)}`), make('pre', {}, x.config))));
}
// The lines of a configuration that differ from the default, with their sections.
function chosen(config) {
  let section = '';
  return config.split('\n').flatMap((line) => {
    if (/^\w+:$/.test(line)) section = line;
    if (!line.includes('  # default: ')) return [];
    const head = section ? [section] : [];
    section = '';
    return [...head, line.replace(/  # default: .*/, '')];
  }).join('\n');
}
// One sentence, said again only when it changes.
function news(s) {
  const late = s.sites.filter((x) => x.waited_for), still = s.sites.filter((x) => !x.trains && x.state !== 'done' && !x.waited_for);
  const done = s.sites.length && s.sites.every((x) => x.state === 'done');
  const text = late.length ? `The others wait for ${late.map(called).join(', ')}.` : done ? 'The run is finished.'
    : still.length ? still.map((x) => `${called(x)}: ${x.state.replace(/ for \d+ s$/, '')}`).join('; ') + '.' : s.sites.length ? 'All sites train.' : 'No site has been heard from yet.';
  say('news', text);
  $('news').className = late.length ? 'bad' : '';
}
function show(s) {
  s.report = has(s.directories);
  s.aggregators = s.aggregators || (s.aggregator ? [s.aggregator] : []);
  s.all = [...s.sites, ...s.aggregators];
  document.title = `Atoll: ${s.run}`;
  say('title', s.run ? `Atoll run “${s.run}”` : 'Atoll');
  const began = least(s.all.map((x) => x.begun).filter((t) => t > 0)), term = s.aggregators.length ? s.aggregators[0].term : null;
  say('fresh', s.report ? [isFinite(began) ? new Date(began * 1000).toISOString().slice(0, 16).replace('T', ' ') + ' UTC' : '', `${s.directories} director${s.directories === 1 ? 'y' : 'ies'}`].filter(Boolean).join(', ')
    : `as of ${clock(s.t)}` + (has(term) ? `, term ${term}` : ''));
  $('fresh').className = 'soft';
  for (const part of [tiles, sitesTable, losses, evaluation, training, spent, byteBars, times, ledger, wan, outer, counted, numbers, health, events, final, program, news]) part(s);
  $('page').hidden = false;
}
let shown = 0, before = '';
async function look() {  // a hidden page asks for nothing
  try {
    if (document.hidden && before) return;
    const answer = await fetch('status.json', {cache: 'no-store', signal: AbortSignal.timeout(15000)});
    if (!answer.ok) throw new Error(await answer.text());
    const s = await answer.json();
    shown = Date.now();
    show(s);
    before = 'shown';
  } catch (e) {
    const age = (Date.now() - shown) / 1000;
    say('fresh', shown ? `no answer for ${time(age)}: the process has ended, or this page's link to it is cut` : `no answer: ${e.message}`);
    if (!shown || age > STALE_S) $('fresh').className = 'bad';
  } finally {
    setTimeout(look, EVERY_MS);
  }
}
if ($('data')) {
  show(JSON.parse($('data').textContent));
} else {
  $('live').hidden = false;
  say('fresh', 'reading…');
  look();
}
