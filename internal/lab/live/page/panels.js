// The panels below the lanes: machines and their faults, what servers say, and the code.
import { svg } from './lanes.js';
import { summary } from './summaries.js';
import { t } from './words.js';

export function element(name, text, className) {
  const e = document.createElement(name);
  if (text !== undefined) e.textContent = text;
  if (className) e.className = className;
  return e;
}

// heading is the cell that names a column or a row.
export const heading = (text, scope = 'col') => Object.assign(element('th', text), { scope });

// lineOf is a row of a table.
export function lineOf(...cells) {
  const tr = element('tr');
  tr.append(...cells);
  return tr;
}

// facts fills a list with names and values.
export function facts(list, pairs) {
  list.replaceChildren(...pairs.map(([name, value]) => {
    const div = element('div');
    div.append(element('dt', name), element('dd', value));
    return div;
  }));
  return list;
}

const actions = { running: ['kill', 'pause'], paused: ['resume'], down: ['start'], working: [] };

const links = { whole: ['slow', 'cut', 'drop'], slow: ['fast', 'cut', 'drop'], cut: ['mend'] }; // of the way to a server
const maxReplicas = 5;

// undoes has the action that stands where another one was.
const undoes = { trap: 'resume', slow: 'fast', fast: 'slow', cut: 'mend', mend: 'cut', lag: 'promote', ahead: 'right', right: 'ahead' };

export class Machines {
  constructor(box, state, steers, post) { Object.assign(this, { box, state, steers, post }); }

  draw() {
    const { machine: focused, action } = document.activeElement?.dataset ?? {};
    const replicas = this.state.machines.filter((m) => m.kind === 'replica').length;
    const list = [...this.state.machines].sort((a, b) => (a.kind === b.kind ? 0 : a.kind === 'replica' ? -1 : 1)); // replicas first
    this.box.replaceChildren(...list.filter((m) => m.why !== 'embedded' || m.link).map((m) => {
      const li = element('li', undefined, m.status);
      li.append(element('span', t(`status.${m.status}`), 'state'), element('h3', m.name), element('p', m.title, 'soft small'));
      if (m.name.startsWith('red')) li.append(element('p', m.status === 'down' ? t('restarted') : '', 'soft small'));
      const row = element('div', undefined, 'buttons');
      const theirs = m.why === 'guest'; // what cannot be done is shown all the same, and greyed out
      const can = [...(!m.why || theirs) && actions[m.status] || [], ...links[m.link] || [], ...m.can || []];
      if (m.why === 'replaced') li.append(element('p', t('why.replaced'), 'small warn'));
      if (m.link && m.link !== 'whole') li.append(element('p', t(`link.${m.link}`), 'warn small'));
      if (m.kind === 'replica' && m.status === 'running' && (theirs || this.trappable())) can.push('trap');
      if (m.kind === 'replica' && m.status !== 'working' && (theirs || replicas > 1)) can.push('remove');
      row.append(...can.map((what) => this.button(m.name, what)));
      li.append(row);
      return li;
    }));
    if (replicas > 0 && replicas < maxReplicas) {
      const li = element('li', undefined, 'more'), row = element('div', undefined, 'buttons');
      row.append(this.button('replica', 'add'));
      li.append(row);
      this.box.children[replicas - 1].after(li);
    }
    const embedded = list.filter((m) => m.why === 'embedded');
    document.getElementById('embedded').textContent = embedded.length ? t('embedded', embedded.map((m) => m.name).join(', ')) : '';
    const again = (what) => this.box.querySelector(`[data-machine="${focused}"][data-action="${what}"]`);
    if (focused) (again(action) ?? again(undoes[action]))?.focus(); // on no other one: Enter would do it
  }

  // trappable tells that the strategy of now has a moment at which a purchase can be paused.
  trappable() {
    const { sale, without_failpoint: without = [] } = this.state;
    return sale.phase === 'selling' && !without.includes(sale.modes?.at(-1)?.strategy);
  }

  button(name, what) {
    const button = element('button', t(`do.${what}`));
    button.type = 'button';
    const { guest, cannot_pause: unable } = this.state, why = guest ? 'why-faults' : unable && ['pause', 'trap'].includes(what) ? 'why-pause' : '';
    button.disabled = !this.steers || why !== '';
    if (why) button.setAttribute('aria-describedby', why);
    button.dataset.machine = name;
    button.dataset.action = what;
    if (what !== 'add') button.setAttribute('aria-label', `${t(`do.${what}`)} ${name}`);
    button.addEventListener('click', () => this.post(`machines/${name}/${what}`));
    return button;
  }
}

// scrolling is a box around a table that scrolls, also by keys.
export function scrolling(table, label, box = element('div', undefined, 'scroll')) {
  box.replaceChildren(table);
  box.tabIndex = 0;
  box.setAttribute('role', 'region');
  box.setAttribute('aria-label', label);
  return box;
}

// tableOf is a table with its title, in a box that scrolls; more adds to a cell.
export function tableOf(view, box, more = () => {}) {
  const table = element('table'), title = t(`see.${view.title}`);
  table.append(element('caption', title === `see.${view.title}` ? view.title : title));
  const body = element('tbody'), first = element('thead');
  first.append(lineOf(...view.head.map((h) => heading(h))));
  for (const row of view.rows) body.append(lineOf(...row.map((cell, i) => { const td = element('td', cell); more(td, i, row); return td; })));
  if (view.rows.length === 0) body.append(lineOf(Object.assign(element('td', t('nothing'), 'soft'), { colSpan: Math.max(1, view.head.length) })));
  table.append(first, body);
  return scrolling(table, table.caption.textContent, box);
}

const every = 300; // milliseconds between two questions to a server

export class Views {
  constructor(state) {
    Object.assign(this, { state, visible: false, lives: new Map() });
    this.select = document.getElementById('backend');
    this.box = document.getElementById('view');
    this.select.addEventListener('change', () => { this.chosen = true; this.forget(); this.ask(); });
    new IntersectionObserver((entries) => { this.visible = entries.at(-1).isIntersecting; }).observe(document.getElementById('sees'));
    setInterval(() => { if (this.visible && !document.hidden && !this.asking) this.ask(); }, every);
  }

  list() {
    const names = this.state.guest ? ['stockd'] : ['database', 'redis', 'redlock', 'zookeeper', 'etcd'].filter((n) => this.state.servers[n]);
    const kept = this.select.value;
    this.select.replaceChildren(...names.map((n) => element('option', n)));
    if (names.includes(kept)) this.select.value = kept;
  }

  // suggest shows the server of a strategy, unless the reader has chosen one.
  suggest(strategy) {
    if (this.chosen) return;
    const need = strategy.needs.find((n) => [...this.select.options].some((o) => o.value === n && n !== 'database'));
    const to = need || (this.state.guest ? 'stockd' : 'database');
    if (to !== this.select.value) this.forget();
    this.select.value = to;
  }

  // forget shows nothing of another server.
  forget() {
    this.lives.clear();
    this.box.replaceChildren();
    document.getElementById('sees-note').textContent = '';
  }

  async ask() {
    const name = this.select.value;
    if (!name) return;
    this.asking = true;
    try {
      const answer = await fetch(`sees/${name}`);
      if (answer.ok && name === this.select.value) this.draw(name, await answer.json());
    } catch {
      // the connection of the events tells it
    } finally {
      this.asking = false;
    }
  }

  draw(name, view) {
    const notes = view.notes.map((n) => t(`note.${n}`));
    if (name === 'redlock') notes.push(t('of.redlock'));
    document.getElementById('sees-note').textContent = view.error ? t('noServer', view.error) : notes.join(' ');
    const boxes = view.tables.map((table, i) => tableOf(table, this.box.children[i], (td, i, row) => { if (table.head[i] === 'ttl_ms' && row[i]) td.append(this.saw(`${table.title} ${row[0]}`, Number(row[i]), view.at)); })); // one that is there stays, with its focus and where it was scrolled to
    for (const old of [...this.box.children].slice(boxes.length)) old.remove();
    this.box.append(...boxes.slice(this.box.children.length));
  }

  // saw draws the time to live of a key as it was seen, over the last questions.
  saw(key, ttl, at) {
    const seen = [...(this.lives.get(key) || []), { at, ttl }].slice(-40);
    this.lives.set(key, seen);
    if (this.lives.size > 200) this.lives.delete(this.lives.keys().next().value);
    const most = Math.max(1, ...seen.map((s) => s.ttl));
    const picture = svg('svg', { class: 'spark', width: 84, height: 16, viewBox: '0 0 84 16', 'aria-hidden': 'true' });
    picture.append(svg('path', { d: seen.map((s, i) => `${i ? 'L' : 'M'}${2 + i * 2} ${15 - (s.ttl / most) * 13}`).join('') }));
    return picture;
  }
}

export class Code {
  constructor() { Object.assign(this, { name: '', cache: new Map() }); }

  async show(strategy) {
    document.getElementById('code-idea').textContent = `${strategy.name}: ${summary(strategy)}`;
    if (strategy.name === this.name) return;
    this.name = strategy.name;
    if (this.recorded) {
      this.cache.set(strategy.name, this.recorded[strategy.name] || []);
    } else if (!this.cache.has(strategy.name)) {
      const answer = await fetch(`code/${strategy.name}`);
      this.cache.set(strategy.name, answer.ok ? await answer.json() : []);
    }
    if (strategy.name !== this.name) return;
    document.getElementById('code').replaceChildren(...this.cache.get(strategy.name).map((l) => {
      const div = element('div', undefined, 'listing'), pre = element('pre');
      pre.tabIndex = 0;
      pre.setAttribute('aria-label', l.path);
      const lines = l.text.replace(/\n$/, '').split('\n'), wide = String(l.line + lines.length).length;
      pre.append(element('code', lines.map((text, i) => `${String(l.line + i).padStart(wide)}  ${text}`).join('\n')));
      div.append(element('h3', `${l.path}:${l.line}`), pre);
      return div;
    }));
  }
}
