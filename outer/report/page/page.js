// The live page: reads status.json every 2 s and draws it. No library, nothing from elsewhere. Names and texts are set as text,
// never as markup.
'use strict';
const EVERY_MS = 2000;
const STALE_S = 30;
const SVG = 'http://www.w3.org/2000/svg';
const CAUSES = [['compute', 'compute'], ['exchange', 'exchange'], ['wait', 'wait for others'], ['restart', 'restarts'],
  ['outage', 'aggregator unreachable'], ['evaluation', 'evaluation'], ['other', 'eval loss, checkpoints, rest']];
const $ = (id) => document.getElementById(id);

// ---- numbers as text ----
const has = (x) => typeof x === 'number' && isFinite(x);
function bytes(x) {
  if (!has(x)) return '';
  const [unit, name] = [[1e12, 'TB'], [1e9, 'GB'], [1e6, 'MB'], [1e3, 'kB'], [1, 'B']].find(([u]) => x >= u) || [1, 'B'];
  return (x / unit).toFixed(unit === 1 ? 0 : x / unit >= 100 ? 0 : 1) + ' ' + name;
}
function count(x) {
  if (!has(x)) return '';
  return x >= 1e9 ? (x / 1e9).toFixed(2) + ' G' : x >= 1e6 ? (x / 1e6).toFixed(2) + ' M' : x >= 1e4 ? (x / 1e3).toFixed(1) + ' k' : String(Math.round(x));
}
function time(s) {
  if (!has(s)) return '';
  s = Math.round(s);
  if (s >= 360000) return Math.floor(s / 86400) + ' d ' + Math.floor(s % 86400 / 3600) + ' h';
  const pad = (v) => String(v).padStart(2, '0');
  const h = Math.floor(s / 3600), m = Math.floor(s % 3600 / 60);
  return h ? h + ':' + pad(m) + ':' + pad(s % 60) : m + ':' + pad(s % 60);
}
const fixed = (x, digits) => has(x) ? x.toFixed(digits) : '';
const clock = (t) => { const d = new Date(t * 1000), p = (v) => String(v).padStart(2, '0');
  return `${d.getFullYear()}-${p(d.getMonth() + 1)}-${p(d.getDate())} ${p(d.getHours())}:${p(d.getMinutes())}:${p(d.getSeconds())}`; };

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
const say = (id, text) => { if ($(id).textContent !== text) $(id).textContent = text; };

// columns: [heading, number?]; rows: arrays of text, or of [text, class]. The first cell of a row is its name.
function table(id, columns, rows, marks) {
  const t = $(id);
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
function ticks(lo, hi, most) {
  const raw = (hi - lo) / most, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw) || raw;
  const out = [];
  for (let v = Math.ceil(lo / step - 1e-9) * step; v <= hi + step * 1e-9; v += step) out.push(v);
  return [out, step];
}
const tickText = (v, step) => Math.abs(v) >= 1e4 ? count(v) : v.toFixed(Math.max(0, Math.min(4, Math.ceil(-Math.log10(step) - 1e-9))));
function frame(svg, box, yName, xName) {
  const x = (v) => L + (v - box.x0) / (box.x1 - box.x0) * (W - L - R), y = (v) => H - B - (v - box.y0) / (box.y1 - box.y0) * (H - T - B);
  const [ys, yStep] = ticks(box.y0, box.y1, 4), [xs, xStep] = ticks(box.x0, box.x1, 6);
  for (const v of ys) svg.append(shape('line', {class: 'rule', x1: L, x2: W - R, y1: y(v), y2: y(v)}), shape('text', {x: L - 6, y: y(v) + 4, 'text-anchor': 'end'}, tickText(v, yStep)));
  for (const v of xs) if (xStep >= 1 || box.fraction) svg.append(shape('text', {x: x(v), y: H - B + 16, 'text-anchor': 'middle'}, tickText(v, xStep)));
  svg.append(shape('line', {class: 'axis', x1: L, x2: W - R, y1: H - B, y2: H - B}), shape('text', {x: W - R, y: H - 2, 'text-anchor': 'end'}, xName));
  return [x, y];
}
function canvas(figure, title, summary, legend) {
  figure.replaceChildren(make('figcaption', {}, title));
  if (legend) {
    const list = make('ul', {class: 'legend'});
    for (const [c, name, value] of legend) list.append(make('li', {}, make('i', {class: c, 'aria-hidden': 'true'}), name + ' ', make('b', {}, value)));
    figure.append(list);
  }
  const svg = shape('svg', {viewBox: `0 0 ${W} ${H}`, role: 'img', 'aria-label': title + ': ' + summary});
  figure.append(svg);
  return svg;
}
// series: [{name, c, points: [[x, y]..]}]
function lines(id, title, xName, series, digits, zero) {
  series = series.map((s) => ({...s, points: s.points.filter(([x, y]) => has(x) && has(y))})).filter((s) => s.points.length);
  const figure = $(id);
  if (!series.length) { figure.replaceChildren(); return; }
  const all = series.flatMap((s) => s.points), xs = all.map((p) => p[0]), ys = all.map((p) => p[1]);
  const box = {x0: Math.min(...xs), x1: Math.max(...xs), y0: zero ? Math.min(0, ...ys) : Math.min(...ys), y1: Math.max(...ys)};
  if (box.x1 === box.x0) box.x1 = box.x0 + 1;
  const pad = (box.y1 - box.y0) * 0.06 || Math.abs(box.y1) * 0.1 || 1;
  if (!zero || box.y0 < 0) box.y0 -= pad;
  box.y1 += pad;
  const last = (s) => s.points[s.points.length - 1][1].toFixed(digits);
  const svg = canvas(figure, title, series.map((s) => `${s.name} ${last(s)}`).join(', '), series.map((s) => [s.c, s.name, last(s)]));
  const [x, y] = frame(svg, box, '', xName);
  for (const s of series) {
    const at = s.points.map(([a, b]) => x(a).toFixed(1) + ',' + y(b).toFixed(1));
    svg.append(at.length > 1 ? shape('polyline', {class: 'line ' + s.c, points: at.join(' ')})
      : shape('circle', {class: 'dot ' + s.c, cx: x(s.points[0][0]), cy: y(s.points[0][1]), r: 3}));
  }
}
// bars: [{x, parts: [[class, value]..], what}], beside one another
function bars(figure, title, xName, list, unitName, c) {
  if (!list.length) { figure.replaceChildren(); return; }
  const most = Math.max(...list.flatMap((b) => b.parts.map((p) => p[1]))) || 1;
  const box = {x0: list[0].x - 0.6, x1: Math.max(list[list.length - 1].x, list[0].x + 9) + 0.6, y0: 0, y1: most * 1.06};
  const svg = canvas(figure, title, list[list.length - 1].what);
  svg.setAttribute('class', c);
  const [x, y] = frame(svg, box, unitName, xName);
  for (const b of list) {
    const w = Math.max(0.6, (x(b.x + 0.42) - x(b.x - 0.42)) / b.parts.length);
    b.parts.forEach(([kind, v], i) => {
      const r = shape('rect', {class: kind, x: x(b.x - 0.42) + i * w, width: Math.max(0.5, w - 0.5), y: y(v), height: Math.max(0, H - B - y(v))});
      r.append(shape('title', {}, b.what));
      svg.append(r);
    });
  }
}

// ---- sections ----
function tiles(s) {
  const sites = s.sites, sum = (k) => sites.reduce((a, x) => a + (has(x[k]) ? x[k] : 0), 0);
  const known = (k) => sites.map((x) => x[k]).filter(has);
  const rounds = s.aggregator || sites[0] || {}, eta = known('eta_s'), sync = known('next_sync_s');
  const list = [];
  if (has(rounds.rounds_planned)) list.push([`${rounds.rounds} / ${rounds.rounds_planned}`, s.aggregator ? 'rounds committed' : 'rounds']);
  if (sites.length === 1) list.push([`${count(sites[0].step)} / ${count(sites[0].steps)}`, 'steps']);
  list.push([count(sum('tokens_per_second')), sites.length > 1 ? 'tokens/s, all sites' : 'tokens/s']);
  if (sync.length) list.push([time(Math.min(...sync)), 'to the next sync']);
  if (eta.length) list.push([time(Math.max(...eta)), 'time left']);
  list.push([bytes(sum('up_bytes')), 'payload up'], [bytes(sum('down_bytes')), 'payload down']);
  $('tiles').replaceChildren(...list.filter(([v]) => v).map(([v, name]) => make('div', {}, make('dt', {}, name), make('dd', {}, v))));
}
function stateOf(x) {
  if (x.waited_for) return [`${x.state} (${time(x.state_s)})`, 'bad'];
  if (x.trains) return [x.state, x.state === 'trains' ? 'good' : 'warn'];
  return [x.state + (x.state_s > 1 && x.state !== 'done' && !/\d s/.test(x.state) ? ` (${time(x.state_s)})` : ''), x.state === 'done' ? '' : 'warn'];
}
function sitesTable(s) {
  const columns = [['site'], ['state'], ['step', 1], ['loss', 1], ['tokens/s', 1], ['round', 1], ['up', 1], ['down', 1], ['next sync', 1], ['time left', 1], ['certificate', 1]];
  const rows = s.sites.map((x) => [x.name, stateOf(x), has(x.step) ? `${x.step} / ${x.steps}` : '', fixed(x.loss, 4), count(x.tokens_per_second),
    has(x.rounds_planned) ? `${x.rounds} / ${x.rounds_planned}` : '', bytes(x.up_bytes), bytes(x.down_bytes), time(x.next_sync_s), time(x.eta_s),
    [has(x.certificate_days) ? x.certificate_days + ' days' : '', x.certificate_days < 7 ? 'bad' : '']]);
  const used = columns.map((c, i) => i < 3 || rows.some((r) => Array.isArray(r[i]) ? r[i][0] : r[i]));
  table('sites', columns.filter((c, i) => used[i]), rows.map((r) => r.filter((c, i) => used[i])), s.sites.map((x, i) => i));
}
function losses(s) {
  say('note-loss', s.private ? 'This run has privacy: no loss of a single site is shown, only what is evaluated on held-out text.'
    : 'Training loss of each site at its steps; eval loss of the outer parameters on held-out text. Nats per target.');
  lines('loss', 'Training loss by site', 'step', s.sites.map((x, i) => ({name: x.name, c: color(i), points: x.losses || []})), 4);
  lines('eval', 'Eval loss', 'step', s.sites.map((x, i) => ({name: x.name, c: color(i), points: x.eval_losses || []})), 4);
  $('s-loss').hidden = !$('loss').firstChild && !$('eval').firstChild && !s.private;
}
// Accuracies by round, and what the model writes behind the prompts.
function evaluation(s) {
  const percent = (v) => has(v) ? (100 * v).toFixed(1) + ' %' : '';
  const list = s.sites.flatMap((x) => (x.tasks || []).map((t) => ({...t, site: x.name})));
  const texts = s.sites.flatMap((x) => (x.probes || []).filter((p) => has(p.round)).map((p) => ({...p, site: x.name})));
  $('s-evaluation').hidden = !list.length && !texts.length;
  $('tasks').hidden = !list.length;
  const several = new Set([...list, ...texts].map((t) => t.site)).size > 1, named = (t) => several ? `${t.name}, ${t.site}` : t.name;
  table('tasks', [['task'], ['accuracy', 1], ['by length', 1], ['chance', 1], ['questions', 1], ['after round', 1]],
    list.map((t) => [named(t), percent(t.accuracy), percent(t.accuracy_norm), percent(t.chance), count(t.questions), String(t.round)]), list.map((t, i) => i));
  while ($('task-charts').children.length > list.length) $('task-charts').lastChild.remove();
  while ($('task-charts').children.length < list.length) $('task-charts').append(make('figure', {id: 'task-' + $('task-charts').children.length}));
  list.forEach((t, i) => {
    const chance = t.by_round.map(([x]) => [x, t.chance]);
    lines('task-' + i, `${named(t)}: accuracy by round`, 'round', [{name: 'accuracy', c: color(i), points: t.by_round},
      {name: 'by length', c: 'pale ' + color(i), points: t.by_round_norm}, {name: 'chance', c: 'chance', points: chance}], 3, true);
  });
  $('probes').replaceChildren(...texts.map((p) => make('figure', {class: 'probe'}, make('figcaption', {}, `${several ? p.site + ', ' : ''}after round ${p.round}`),
    make('p', {}, make('b', {}, p.prompt), p.text))));
}
function spent(s) {
  const list = s.sites.filter((x) => x.spent_s && x.spent_s.all > 0);
  $('s-spent').hidden = !list.length;
  const share = (x, k) => 100 * x.spent_s[k] / x.spent_s.all;
  $('spent-bars').replaceChildren(make('ul', {class: 'legend', 'aria-hidden': 'true'}, ...CAUSES.map(([k, name]) => make('li', {}, make('i', {class: k}), name))),
    ...list.flatMap((x) => {
      const bar = make('div', {class: 'bar', 'aria-hidden': 'true'});
      for (const [k, name] of CAUSES) {
        const part = make('span', {class: k, title: `${name} ${share(x, k).toFixed(1)} %`});
        part.style.width = share(x, k) + '%';
        bar.append(part);
      }
      return [make('div', {class: 'barname', 'aria-hidden': 'true'}, `${x.name}: goodput ${share(x, 'compute').toFixed(1)} %`), bar];
    }));
  table('spent', [['site'], ...CAUSES.map(([, name]) => [name, 1]), ['all', 1]],
    list.map((x) => [x.name, ...CAUSES.map(([k]) => share(x, k).toFixed(1) + ' %'), time(x.spent_s.all)]), list.map((x) => s.sites.indexOf(x)));
}
function roundX(list) { // the number of the round; with fragments their place in time
  const fragments = list.some((r) => r.fragment > 0);
  return list.map((r, i) => fragments ? i : r.round);
}
function byteBars(s) {
  const list = s.sites.filter((x) => x.last_rounds.length && x.rounds > 0);
  $('s-bytes').hidden = !list.length;
  while ($('bytes').children.length > list.length) $('bytes').lastChild.remove();
  while ($('bytes').children.length < list.length) $('bytes').append(make('figure'));
  list.forEach((x, i) => {
    const at = roundX(x.last_rounds), most = Math.max(...x.last_rounds.flatMap((r) => [r.up_bytes, r.down_bytes]));
    const [unit, name] = [[1e9, 'GB'], [1e6, 'MB'], [1e3, 'kB'], [1, 'B']].find(([u]) => most >= u) || [1, 'B'];
    bars($('bytes').children[i], `Site ${x.name}, ${name} by round`, 'round', x.last_rounds.map((r, k) => ({x: at[k], parts: [['up', r.up_bytes / unit], ['down', r.down_bytes / unit]],
      what: `round ${r.round}${r.fragment ? ' of fragment ' + r.fragment : ''}: ${bytes(r.up_bytes)} up, ${bytes(r.down_bytes)} down`})), name, color(s.sites.indexOf(x)));
  });
}
function outer(s) {
  const a = s.aggregator, rounds = a ? a.last_rounds : [];
  const xa = roundX(rounds);
  bars($('waited'), 'Aggregator: seconds from the first contribution to the commit', 'round', rounds.map((r, i) => ({x: xa[i], parts: [[r.included < r.sites ? 'miss' : 'up', r.waited_s || 0]],
    what: `round ${r.round}: ${fixed(r.waited_s, 1)} s, ${r.included} of ${r.sites} sites`})), 's', 's4');
  lines('momentum', 'Norm of the outer momentum', 'round', [{name: 'momentum', c: 's7', points: rounds.map((r, i) => [xa[i], r.momentum_norm])}], 3, true);
  const of = (k) => s.sites.map((x, i) => ({name: x.name, c: color(i), points: x.last_rounds.map((r, n) => [roundX(x.last_rounds)[n], r[k]])}));
  lines('rho', 'Rho: cosine of the mean delta and the one before', 'round', of('rho'), 3, true);
  lines('agreement', "Agreement: cosine of a site's delta and the mean delta", 'round', of('agreement'), 3, true);
  lines('gain', 'Gain: applied outer step over the outer learning rate', 'round', of('gain'), 3, true);
  lines('residual', "Residual ratio: residual over the site's delta", 'round', of('residual_ratio'), 4, true);
  say('note-outer', a && a.last_rounds.length ? 'The last rounds. Red: a site is missing from the round.' : 'The last rounds.');
  $('s-outer').hidden = ![...$('s-outer').querySelectorAll('figure')].some((f) => f.firstChild);
}
function health(s) {
  const all = [...(s.aggregator ? [s.aggregator] : []), ...s.sites];
  table('health', [['machine'], ['certificate', 1], ['disk free', 1], ['clock, to the aggregator', 1], ['clock error', 1], ['starts', 1], ['newest record', 1]], all.map((x) => [x.name,
    [has(x.certificate_days) ? x.certificate_days < 0 ? 'EXPIRED' : `${x.certificate_days} days` : '', x.certificate_days < 7 ? 'bad' : ''], [bytes(x.disk_free_bytes), x.disk_free_bytes < 1e9 ? 'bad' : ''],
    [has(x.clock_aggregator_s) ? fixed(x.clock_aggregator_s, 3) + ' s' : '', Math.abs(x.clock_aggregator_s) > 2 ? 'bad' : ''], has(x.clock_error_s) ? fixed(x.clock_error_s, 3) + ' s' : '', has(x.starts) && x.starts ? String(x.starts) : '', time(x.record_age_s) + ' ago']));
}
function events(s) {
  table('events', [['time'], ['where'], ['what']], s.events.map((e) => [clock(e.t), e.who, e.text]));
}
// One sentence, said again only when it changes.
function news(s) {
  const late = s.sites.filter((x) => x.waited_for), still = s.sites.filter((x) => !x.trains && x.state !== 'done' && !x.waited_for);
  const done = s.sites.length && s.sites.every((x) => x.state === 'done');
  const text = late.length ? `The others wait for ${late.map((x) => x.name).join(', ')}.` : done ? 'The run is finished.'
    : still.length ? still.map((x) => `${x.name}: ${x.state.replace(/ for \d+ s$/, '')}`).join('; ') + '.' : s.sites.length ? 'All sites train.' : 'No site has been heard from yet.';
  say('news', text);
  $('news').className = late.length ? 'bad' : '';
}
function show(s) {
  document.title = `Atoll: ${s.run}`;
  say('title', s.run ? `Atoll run “${s.run}”` : 'Atoll');
  say('fresh', `as of ${clock(s.t)}` + (s.aggregator && has(s.aggregator.epoch) ? `, epoch ${s.aggregator.epoch}` : ''));
  $('fresh').className = 'soft';
  for (const part of [tiles, sitesTable, losses, evaluation, spent, byteBars, outer, health, events, news]) part(s);
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
look();
