// The page of stocklab live: it keeps the state that the events tell, and draws it.

import { $, change, language, number, seconds, t, words } from './words.js';
import { summary } from './summaries.js';
import { Charts } from './charts.js';
import { Lanes } from './lanes.js';
import { Code, Machines, Views, element, facts } from './panels.js';
import { Player } from './replay.js';
import { Trace } from './trace.js';
import { Compare, otherwise } from './compare.js';
import { figuresOf, remarkWords, verdictWords } from './verdict.js';
import { Lab, made } from './lab.js';
import { Trial } from './trial.js';
import { Story, moments, say } from './story.js';
import { greyOut } from './guest.js';
import { Report, unpacked } from './report.js';
import { Tour } from './tour.js';

const tokenOf = () => new URLSearchParams(location.hash.slice(1)).get('token');
const token = tokenOf();
const recorded = $('recordings') ?? $('run'); // in a saved file
if (!token) addEventListener('hashchange', () => { if (tokenOf()) location.reload(); }); // a reader got the token
const steers = Boolean(token) && !recorded;
const state = { machines: [], strategies: [], points: [], leases: new Map(), marks: [], lanes: {}, sale: { phase: 'idle' }, servers: {} };
const maxPoints = 1400, maxLeases = 600;

// post sends a command, and shows why it was not accepted.
async function post(path, body) {
  $('said').textContent = '';
  try {
    const answer = await fetch(path, {
      method: 'POST', body: body ? JSON.stringify(body) : undefined,
      headers: { Authorization: `Bearer ${token}`, 'Content-Type': 'application/json' },
    });
    if (!answer.ok) $('said').textContent = (await answer.json()).error;
    return answer.ok;
  } catch (failure) {
    $('said').textContent = String(failure.message || failure);
    return false;
  }
}

const form = $('form');
const charts = new Charts(state);
const lanes = new Lanes(state);
const trace = new Trace(lanes);
const machines = new Machines($('machines'), state, steers, post);
const views = new Views(state);
const code = new Code();
const player = new Player(showMoment);
const compare = new Compare();
let next; // the settings of the sale that follows this one, to compare
let starting = false; // until the stream says that it began
let refill = false; // after a replay the form has the settings of a recording
const lab = new Lab(state, steers, post), trial = new Trial();
const story = new Story();
const report = new Report(showChapter);
const tour = new Tour(state, post, sell);
const field = (name) => form.elements.namedItem(name);
const replicas = () => state.machines.filter((one) => one.kind === 'replica').length;

function chosen() {
  return { strategy: field('strategy').value, group: field('group').checked, fence: field('fence').checked };
}

function settings() {
  const s = chosen();
  for (const name of ['stock', 'clients', 'replicas', 'rate', 'work_ms', 'ttl_s', 'room']) s[name] = Number(field(name).value);
  return s;
}

// fill shows settings in the form.
function fill(s) {
  for (const [name, value] of Object.entries(s)) {
    const input = field(name);
    if (!input) continue;
    if (input.type === 'checkbox') input.checked = value; else input.value = value;
  }
  drawChoice();
}

// sell starts a sale as the form would; false: none can begin now.
function sell(settings) {
  if (starting || active()) return false;
  fill(settings);
  form.requestSubmit();
  return true;
}

const same = (a, b) => a && b && a.strategy === b.strategy && a.group === b.group && a.fence === b.fence;
const inPlay = () => Boolean(recorded) || !$('player').hidden;
const active = () => !['idle', 'ended'].includes(state.sale.phase);

function drawStrategies() {
  const select = field('strategy'), kept = select.value || state.sale.settings?.strategy;
  const families = Map.groupBy(state.strategies, (s) => s.family);
  select.replaceChildren(...[...families].map(([family, list]) => {
    const group = element('optgroup');
    group.label = family;
    group.append(...list.map((s) => {
      const option = element('option', s.available ? s.name : `${s.name} – ${s.note || ''}`);
      option.value = s.name;
      option.disabled = !s.available;
      return option;
    }));
    return group;
  }));
  if (kept) select.value = kept;
  drawChoice();
}

const chosenStrategy = () => state.strategies.find((s) => s.name === field('strategy').value);

// drawChoice says what the chosen strategy does and guarantees.
function drawChoice() {
  const s = chosenStrategy();
  if (!s) return;
  field('fence').disabled = !steers || !s.claims.fenceable;
  if (!s.claims.fenceable) field('fence').checked = false;
  const fenced = [...field('against').options].find((o) => o.value === 'fence');
  fenced.disabled = !s.claims.fenceable;
  if (fenced.disabled && field('against').value === 'fence') field('against').value = '';
  $('summary').textContent = summary(s) + (s.note ? ` (${s.note})` : '');
  drawPromise(s);
  if (state.sale.phase !== 'playing') showStrategy(s); // else that of the part
  drawButtons();
}

// drawPromise says whether a strategy oversells, and that the row still has what lost updates left.
function drawPromise({ claims, damage }) {
  const replicas = Number(field('replicas').value) || 1;
  const exclusive = replicas > 1 ? claims.exclusive_across_replicas : claims.exclusive_in_process || field('group').checked;
  const lost = state.points.findLast((p) => p.seen > 0)?.lost;
  const phantom = exclusive && ['selling', 'paused'].includes(state.sale.phase) && lost > 0;
  const loses = exclusive && claims.fenceable && !claims.signals_loss && !field('fence').checked, warn = loses || phantom;
  const says = exclusive ? (warn ? '! ' : '✓ ') + t(loses ? 'whileHeld' : 'exclusive', replicas) : '✕ ' + t('oversells', replicas, damage);
  $('promise').textContent = says + (phantom ? ` ${t('phantom', lost)}` : '');
  $('promise').className = `wide small ${warn ? 'warn' : exclusive ? 'good' : 'bad'}`;
  $('correct').hidden = !phantom || !steers || Boolean(state.guest);
}

function showStrategy(s) {
  code.show(s);
  views.suggest(s);
}

function drawButtons() {
  const phase = state.sale.phase, selling = phase === 'selling' || phase === 'paused';
  $('start').hidden = active();
  $('switch').hidden = !selling || same(chosen(), state.sale.modes?.at(-1));
  $('pause').hidden = phase !== 'selling';
  $('continue').hidden = phase !== 'paused';
  $('stop').hidden = !active() || phase === 'stopping';
  $('class-start').textContent = t(active() ? 'stop' : 'class.start');
  $('class-start').disabled = !steers || phase === 'stopping';
  for (const input of form.elements) {
    const mode = ['strategy', 'group'].includes(input.name);
    if (input.name === 'fence') continue;
    input.disabled = !steers || (active() && !mode && input.tagName !== 'BUTTON');
  }
  greyOut(state, inPlay());
}

// drawNumbers shows the last point whose row and ledger were read.
let spoken = 0;
function drawNumbers() {
  const seen = state.points.findLast((p) => p.seen > 0), last = state.points.at(-1);
  $('n-stock').textContent = seen ? number(seen.stock) : '–';
  $('n-sold').textContent = seen ? number(seen.sold) : '–';
  $('n-over').textContent = seen ? number(seen.oversold) : '–';
  $('over').classList.toggle('bad', Boolean(seen?.oversold));
  const recent = state.points.slice(-4), time = recent.reduce((sum, p) => sum + p.seconds, 0);
  const answers = recent.reduce((sum, p) => sum + Object.values(p.answers).reduce((a, b) => a + b, 0), 0);
  $('n-rate').textContent = last && active() && time > 0 ? number(Math.round(answers / time)) : '–';
  drawLine(state.points.findLast((p) => p.line)?.line);
  $('n-phase').textContent = t(`phase.${state.sale.phase}`);
  if (seen && performance.now() - spoken > 4000) {
    spoken = performance.now();
    $('spoken').textContent = t('spoken', seen, state.sale.settings?.stock);
  }
}

// drawLine shows the waiting room as it was counted last.
function drawLine(line) {
  $('line').hidden = !line && inPlay();
  $('no-line').hidden = Boolean(line);
  $('in-line').hidden = !line;
  if (!line) return;
  for (const name of ['waiting', 'admitted', 'admissions', 'left']) $(`l-${name}`).textContent = number(line[name]);
  $('l-wait').textContent = line.wait ? `${number(line.wait)} s` : '–';
  charts.resize(); // while it was hidden its chart had no width
}

function drawSale() {
  const { sale } = state, v = sale.verdict;
  document.body.classList.toggle('idle', sale.phase === 'idle' && !inPlay());
  $('begin').hidden = !steers;
  drawButtons();
  drawNumbers();
  lab.draw();
  $('tour').hidden = !steers || Boolean(state.guest) || inPlay();
  if (!$('tour').hidden) tour.draw();
  if (sale.error) $('said').textContent = sale.error;
  $('replay').hidden = $('save').hidden = inPlay() || !sale.item || sale.phase === 'playing' || Boolean(state.play && !state.play.parts.some(made));
  if (!inPlay()) $('faults').hidden = sale.phase === 'playing';
  $('verdict').hidden = !v;
  if (!v) return;
  $('verdict-words').textContent = `${v.strategy}: ${verdictWords(v)}`;
  $('verdict-words').className = `verdict ${v.clean ? 'good' : v.known ? 'warn' : 'bad'}`;
  $('verdict-remark').textContent = [remarkWords(v), v.faults ? t('faults') : ''].filter(Boolean).join(' ');
  facts($('verdict-figures'), [[t('replicasWord'), number(v.replicas)], ...figuresOf(v)]);
  $('beside').hidden = !compare.ready || inPlay();
  $('next').textContent = t(`next.${v.next.why}`, v.next);
  $('take').hidden = !steers || Boolean(state.guest && v.next.replicas !== state.sale.settings.replicas); // their number is not ours to change
}

// markWords say what a mark is of. An experiment has marks of its own, whose Chinese words are its story's.
function markWords(m) {
  const known = t(`mark.${m.what}`), own = known.startsWith('mark.');
  if (m.what === 'sell') return `${known} ${m.detail}${m.phantom ? `. ${t('phantom', m.phantom)}` : ''}`;
  if (own && language() === 'zh') return say({ what: 'mark', who: m.who, mark: m.what }, shownRecording?.narration ?? story.lines);
  return [m.who, own ? m.what : known, m.detail].filter(Boolean).join(' ');
}

function drawMarks() {
  charts.changed();
  const start = charts.start();
  $('marks').replaceChildren(...state.marks.map((m, i) => {
    const li = element('li');
    li.append(element('b', String(i + 1)), ` ${seconds(m.at - start)} ${markWords(m)}`);
    return li;
  }));
}

// drawBuyers lists the phones of a class.
function drawBuyers() {
  const list = state.buyers || [];
  $('class').hidden = !(list.length || state.class) || inPlay();
  $('class-at').textContent = t('buyers-at', state.class || `${location.origin}/buy`);
  $('class-code').hidden = !state.class;
  if (state.class && !recorded) {
    if (!$('class-code').src) $('class-code').src = 'buy/code.png';
    $('class-code').alt = t('buyers-code', state.class);
  }
  $('buyers').replaceChildren(...list.map((b) => {
    const li = element('li');
    const known = t(`bought.${b.last}`), word = known.startsWith('bought.') ? t('bought.failed', b.last) : known;
    li.append(element('b', b.name), ` ${t('buyer.bought')} ${number(b.bought)}`);
    if (b.no) li.append(element('span', t('buyer.no', b.no, b.of), b.no > b.of ? 'bad' : 'good'));
    if (b.last && b.last !== 'sold') li.append(element('span', word));
    return li;
  }));
}

function drawServers() {
  $('on').textContent = Object.entries(state.servers).map(([name, s]) => `${name}: ${s.name} ${s.version} (${s.started})`.replace('  ', ' ')).join(', ');
  views.list();
}

function drawAll() {
  words();
  $('link').textContent = t(inPlay() ? 'recorded' : $('link').classList.contains('bad') ? 'lostLink' : 'live');
  $('reader').hidden = steers || inPlay();
  $('guest').hidden = !state.guest || inPlay();
  player.words();
  if (report.run) report.draw();
  drawServers();
  drawStrategies();
  drawSale();
  charts.rebuild();
  drawMarks();
  drawBuyers();
  compare.draw();
  lanes.draw(); // also those that are frozen
  machines.draw();
  tell();
  if (player.playing) $('play').textContent = t('play-stop');
}

// tell says what has happened so far in the experiment that is made, or was made last.
let telling = false;
function tell() {
  if (telling || !state.play || inPlay()) return;
  telling = true;
  setTimeout(() => {
    telling = false;
    if (!state.play || inPlay()) return;
    const part = state.play.parts.findLast((p) => p.tries > 0)?.name, lock = state.leases.values().next().value?.lock;
    const sells = state.strategies.find((s) => s.name === part) ?? state.strategies.find((s) => s.name === lock);
    if (sells && state.sale.phase === 'playing') showStrategy(sells);
    const until = Math.max(state.lanes.until || 0, state.points.at(-1)?.at || 0, state.marks.at(-1)?.at || 0);
    story.draw(moments({ ...state, leases: [...state.leases.values()] }, until), charts.start());
  }, 250);
}

// showMoment shows a moment of a recording that lasts so many seconds.
let shownRecording, told = [];
function showMoment(recording, moment, lasts) {
  Object.assign(state, moment, { apart: Boolean(recording.apart), lasts, pair: recording.pair, from: player.from, servers: recording.servers || {}, strategies: recording.strategies || [] });
  if (shownRecording !== recording) {
    shownRecording = recording;
    code.recorded = recording.code || {}; // before the first drawing, which would ask a server
    told = recording.told ?? (recording.part ? moments(recording, player.end) : []);
    drawAll();
    fill({ ...recording.sale.settings, ...recording.sale.modes?.at(-1) });
    lanes.reset();
    $('lanes-panel').hidden = recording.leases.length === 0;
    $('code-panel').hidden = Object.keys(code.recorded).length === 0;
    $('faults').hidden = Boolean(recording.apart); // what was done is among the marks
    $('units').hidden = !recording.points.some((p) => p.seen);
    $('numbers').hidden = $('units').hidden || Boolean(recording.pair);
    charts.resize();
  }
  drawSale();
  drawMarks();
  story.draw(told.filter((m) => m.at <= player.from + player.after), player.from, recording.narration);
  lanes.draw(); // at once, since a moment is drawn once a frame at most
  machines.draw();
}

// showChapter shows an experiment of a report; one that was not made has nothing to play.
function showChapter(play, recordings) {
  state.play = play;
  for (const id of ['player', 'times', 'lanes-panel', 'code-panel', 'story', 'faults', 'numbers', 'line']) $(id).hidden = recordings.length === 0;
  trace.close();
  if (recordings.length > 0) player.open(recordings); else lab.draw();
}

// replay closes the stream of events; what is missed meanwhile comes as a snapshot.
let events, again;
async function replay() {
  const answer = await fetch('recording');
  if (!answer.ok) return;
  const recordings = await answer.json();
  events.close();
  clearTimeout(again);
  inReplay(true);
  player.open(recordings);
}

function inReplay(on) {
  $('player').hidden = !on;
  for (const id of ['controls', 'sees', 'embedded', 'reader']) $(id).hidden = on || (id === 'reader' && steers);
  document.body.classList.toggle('saved', on);
  $('link').textContent = t(on ? 'recorded' : 'live');
  $('link').classList.remove('bad');
  machines.steers = steers && !on;
  if (on) {
    $('compare').hidden = true;
    if (!recorded) $('play').focus();
  }
}

function backToNow() {
  player.stop();
  shownRecording = undefined;
  code.recorded = undefined;
  Object.assign(state, { apart: false, pair: undefined, lasts: undefined, from: undefined });
  for (const id of ['lanes-panel', 'code-panel', 'faults', 'numbers', 'units']) $(id).hidden = false;
  inReplay(false);
  refill = true;
  listen();
}

function keep(list, most) { if (list.length > most) list.splice(0, list.length - most); }

function keepLeases(list) {
  for (const l of list) { state.leases.delete(l.id); state.leases.set(l.id, l); }
  for (const id of state.leases.keys()) {
    if (state.leases.size <= maxLeases) break;
    state.lanes.whole = Math.max(state.lanes.whole || 0, state.leases.get(id).granted || 0);
    state.leases.delete(id);
  }
}

const apply = {
  snapshot(s) {
    const first = refill || !state.sale.settings, settings = { ...s.sale.settings, ...s.sale.modes.at(-1) };
    const missed = s.sale.phase === 'ended' && s.sale.item === state.sale.item && !compare.has(s.sale); // the end of a sale
    refill = starting = false;
    $('link').classList.remove('bad');
    Object.assign(state, s, { leases: new Map(s.leases.map((l) => [l.id, l])) });
    if (!s.play) $('story').hidden = true;
    if (missed && s.sale.verdict) compare.add(s.sale, state.points, charts.start());
    if (first) fill(settings);
    if (first && tour.at < 0) $('tour-open').open = s.sale.phase === 'idle'; // the story is what an empty page opens with
    drawAll();
    if (first) fill(settings);
    if (s.guest) field('replicas').value = replicas();
    if (missed) goOn(Boolean(s.sale.verdict));
  },
  began(sale) {
    starting = false;
    showCompare(false);
    $('said').textContent = '';
    Object.assign(state, { sale, points: [], marks: [], lanes: {} });
    state.leases.clear();
    lanes.reset();
    trace.close();
    if (sale.phase !== 'playing') fill(sale.settings);
    drawSale();
    charts.rebuild();
    drawMarks();
    lanes.changed();
  },
  sale(sale) {
    const ended = sale.verdict && !state.sale.verdict, over = sale.phase === 'ended' && state.sale.phase !== 'ended';
    if (state.sale.phase === 'playing' && sale.phase === 'ended') fill(sale.settings);
    state.sale = sale;
    if (ended) compare.add(sale, state.points, charts.start());
    drawSale();
    drawChoice();
    lanes.changed();
    machines.draw();
    if (ended) $('spoken').textContent = $('verdict-words').textContent;
    if (over) goOn(Boolean(ended));
  },
  point(p) {
    state.points.push(p);
    keep(state.points, maxPoints);
    drawNumbers();
    const s = chosenStrategy();
    if (s) drawPromise(s);
    charts.changed();
    if (!state.lanes.granted) lanes.changed(); // that no lock is recorded is known by what was sold
    tell();
  },
  mark(m) {
    state.marks.push(m);
    keep(state.marks, 200);
    drawMarks();
    if (['add', 'remove', 'came', 'went'].includes(m.what)) {
      field('replicas').value = replicas();
      drawChoice();
    }
  },
  leases(r) {
    const whole = state.lanes.whole || 0;
    state.lanes = r.lanes;
    state.lanes.whole = Math.max(whole, r.lanes.whole);
    keepLeases(r.leases);
    lanes.changed();
  },
  machines(list) { state.machines = list; machines.draw(); lanes.changed(); tour.draw(); },
  play(p) {
    state.play = p;
    if (!p) $('story').hidden = true;
    lab.draw();
    tell();
  },
  buyers(list) { state.buyers = list; drawBuyers(); },
  strategies(list) { state.strategies = list; drawStrategies(); },
};

function listen() {
  const stream = events = new EventSource('events');
  const say = (ok) => {
    $('link').textContent = ok ? t('live') : t('lostLink');
    $('link').classList.toggle('bad', !ok);
  };
  events.onopen = () => { if (state.sale.settings) say(true); }; // else the first snapshot says it, which fills the form
  events.onerror = () => {
    say(false);
    if (stream.readyState === EventSource.CLOSED) again = setTimeout(listen, 3000); // the browser gives up where the answer is no stream
  };
  for (const [kind, take] of Object.entries(apply)) events.addEventListener(kind, (e) => take(JSON.parse(e.data)));
}

// goOn begins the second sale of two, or shows both.
let second = false;
function goOn(judged) {
  const settings = next;
  next = undefined;
  if (settings && judged) {
    second = true;
    post('sale/start', settings);
  } else if (second) {
    second = false;
    showCompare(judged);
  }
}

function showCompare(on) {
  $('compare').hidden = !on || !compare.ready;
  compare.draw();
  if (on) $('compare').focus();
}

form.addEventListener('submit', (e) => {
  e.preventDefault();
  if (starting || active()) return; // Enter in a field would start it once more
  starting = true;
  const first = settings();
  second = false;
  next = otherwise(first, field('against').value);
  post('sale/start', first).then((ok) => { if (!ok) { starting = false; next = undefined; } });
});
$('class-start').addEventListener('click', () => {
  if (active()) return post('sale/stop');
  const still = state.guest || state.without_failpoint?.includes(field('strategy').value); // no work can be added
  return sell({ stock: 5, clients: 0, rate: 0, room: 0, work_ms: still ? 0 : 500, against: '' });
});
$('projector').addEventListener('click', () => $('projector').setAttribute('aria-pressed', document.body.classList.toggle('projector')));
$('beside').addEventListener('click', () => showCompare(true));
form.addEventListener('input', drawChoice);
$('correct').addEventListener('click', () => post('sale/correct'));
$('switch').addEventListener('click', () => post('sale/switch', chosen()));
for (const command of ['pause', 'continue', 'stop']) $(command).addEventListener('click', () => post(`sale/${command}`));
$('take').addEventListener('click', () => {
  const { why, ...all } = state.sale.verdict.next;
  if (state.guest) all.work_ms = 0; // these replicas have no failpoint
  fill(all);
  $('start').focus();
});
$('language').addEventListener('click', () => { change(language() === 'zh' ? 'en' : 'zh'); drawAll(); lab.list(); trial.draw(); if (!$('player').hidden) player.go(player.after); });
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { charts.rebuild(); compare.draw(); });

$('replay').addEventListener('click', replay);
$('pair').addEventListener('click', () => replay().then(() => player.play()));
$('back').addEventListener('click', backToNow);

words();
if (recorded) {
  $('back').hidden = true;
  inReplay(true);
  if (recorded.id === 'run') report.open(); else unpacked('recordings').then((recordings) => player.open(recordings));
} else {
  $('trial').hidden = false;
  $('trial').addEventListener('toggle', () => trial.open());
  lab.load().then((lines) => { story.lines = lines; });
  listen();
}
