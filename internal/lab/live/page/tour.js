// The story of the page: ten sales, each with a sentence on what happens and one on what to look at. Next is all that it needs.

import { $, language, t } from './words.js';
import { verdictWords } from './verdict.js';

// Where a step does not say otherwise, it sells like this.
const usual = { strategy: 'naive', group: false, fence: false, stock: 200, clients: 30, rate: 0, replicas: 3, work_ms: 20, ttl_s: 5, room: 0, against: '' };

const steps = [
  { form: { stock: 100, clients: 1, replicas: 1, work_ms: 100 },
    en: ['One buyer, one replica: naive reads the stock, compares it, and writes what is left.', 'Watch row and ledger: together they stay at 100.'],
    zh: ['一个买家、一个副本：naive 读库存，比较，再写回剩余。', '看库存行和账本：两者之和一直是 100。'] },
  { form: { replicas: 1 },
    en: ['Thirty buyers do the same at once: many read the same stock, and all of them sell it.', 'Watch Oversold turn red while the row still shows stock.'],
    zh: ['三十个买家同时这样买：许多请求读到同样的库存，都卖了出去。', '看“超卖”变红，库存行却还显示有货。'] },
  { form: { strategy: 'mutex', replicas: 1 }, look: 'lanes-panel',
    en: ['A mutex in the process lets one purchase at a time read and write, and the stock is sold exactly.', 'Watch who holds the lock: each bar begins where the one before ends.'],
    zh: ['进程内的互斥锁一次只让一个请求读和写，库存正好卖完。', '看谁持有锁：前一条结束，后一条才开始。'] },
  { form: { strategy: 'mutex' }, look: 'lanes-panel',
    en: ['Three replicas have three mutexes, and three purchases read and write at once.', 'Watch the red hatching: there the item has more than one holder.'],
    zh: ['三个副本就有三把互斥锁，三个请求同时读和写。', '看红色斜线：那里一件商品有不止一个持有者。'] },
  { form: { strategy: 'sql-conditional', stock: 2000, work_ms: 0 },
    en: ['The database compares and subtracts in one statement, and three replicas sell exactly what there is.', 'Watch Oversold stay at 0: where one row decides, no other lock is needed.'],
    zh: ['数据库在一条语句里比较并扣减，三个副本也正好卖完。', '看“超卖”一直是 0：只由一行决定时，不需要别的锁。'] },
  { form: { strategy: 'redis-setnx-ttl' }, look: 'lanes-panel',
    en: ['A lock in Redis is shared by all replicas. Its TTL frees it when its holder crashes.', 'Watch one bar follow the other, whichever replica it is on.'],
    zh: ['Redis 里的锁由所有副本共用。持有者崩溃时，TTL 会释放它。', '看各副本上的条一个接一个，互不重叠。'] },
  { form: { strategy: 'redis-setnx-ttl', stock: 20, clients: 6, work_ms: 1500, ttl_s: 1 }, look: 'lanes-panel',
    en: ['The work takes 1.5 s and the TTL is 1 s: the lock runs out while its holder still works.', 'Watch the triangles, where a TTL ends, and the second holder after each.'],
    zh: ['业务耗时 1.5 秒，TTL 只有 1 秒：持有者还在干活，锁就到期了。', '看三角（TTL 到期），随后出现第二个持有者。'] },
  { form: { strategy: 'redis-reentrant', stock: 8, clients: 3, work_ms: 1500, ttl_s: 1 }, look: 'lanes-panel',
    en: ['A watchdog renews the lease while its holder lives, and the same work is safe.', 'Watch the ticks on each bar: they are its renewals.'],
    zh: ['只要持有者还活着，看门狗就为它续期，同样的业务就安全了。', '看每一条上的短竖：那是续期。'] },
  { form: { strategy: 'redis-setnx-ttl', clients: 100, ttl_s: 1 }, pause: true, look: 'lanes-panel',
    en: ['A replica that is paused, as a frozen virtual machine is, cannot know that its lock has run out: its late write brings back units that are sold.', 'Watch replica-1 stop for three seconds, and another hold the lock meanwhile.'],
    zh: ['副本停顿时（例如虚拟机被冻结），不会知道自己的锁已到期：它迟到的写入让已卖出的库存又回来了。', '看 replica-1 停住三秒，其间别的副本持有锁。'] },
  { form: { strategy: 'redis-reentrant', fence: true, clients: 100, ttl_s: 1 }, pause: true, look: 'lanes-panel',
    en: ['Each lease has a greater number than the one before, its fencing token. The row accepts the newest alone, and rejects the late write.', 'Watch the same pause of replica-1: nothing is oversold.'],
    zh: ['每次持锁的围栏令牌都比前一次大。库存行只接受最新的令牌，迟到的写入被拒绝。', '看 replica-1 同样的停顿：没有超卖。'] },
];

export class Tour {
  // start begins a sale with these settings, or returns false where none can begin yet.
  constructor(state, post, start) {
    Object.assign(this, { state, post, start, at: -1 });
    $('tour-next').addEventListener('click', () => this.go());
    $('tour-skip').addEventListener('click', () => { $('tour-open').open = false; });
  }

  get steps() { return this.state.cannot_pause ? steps.filter((s) => !s.pause) : steps; }

  go() {
    this.at = (this.at + 1) % this.steps.length;
    this.due = true;
    this.own = undefined;
    for (const m of this.paused()) this.post(`machines/${m.name}/resume`); // else its requests hold up the end
    this.draw();
  }

  paused() { return this.state.machines.filter((m) => m.status === 'paused'); }

  // follow begins the sale of a step when the one before is over. It pauses a purchase where the step says so, and ends the sale in time.
  follow() {
    const { phase, item } = this.state.sale, step = this.steps[this.at];
    if (this.due && this.start({ ...usual, ...step.form })) {
      this.due = false;
      this.own = 'next';
      $(step.look ?? 'times').scrollIntoView();
    } else if (this.due && ['starting', 'selling', 'paused', 'playing'].includes(phase) && this.ended !== item) {
      this.ended = item;
      this.post('sale/stop');
    } else if (this.own === 'next' && phase === 'selling') {
      this.own = item;
      this.held = false;
      this.later(step.pause ? 1 : 20, step.pause ? 'machines/replica-1/trap' : 'sale/stop');
    } else if (this.own === item && step?.pause && !this.held && this.paused().length > 0) {
      this.held = true;
      this.later(3, 'machines/replica-1/resume');
      this.later(15, 'sale/stop');
    }
  }

  // later posts a command after so many seconds, if it still fits: a resume also while the sale waits for its last answers.
  later(after, path) {
    const { own } = this, fits = () => (path.endsWith('resume') ? this.paused().length > 0 : this.state.sale.phase === 'selling');
    setTimeout(() => { if (this.own === own && fits()) this.post(path); }, after * 1000);
  }

  draw() {
    this.follow();
    const step = this.steps[this.at], { item, verdict } = this.state.sale;
    $('tour-title').textContent = step ? t('tour.step', this.at + 1, this.steps.length) : t('tour.title', this.steps.length);
    [$('tour-happens').textContent, $('tour-do').textContent] = step?.[language()] ?? [t('tour.begin'), ''];
    $('tour-next').textContent = t(this.at + 1 === this.steps.length ? 'tour.again' : 'tour.next');
    const judged = this.own === item && verdict;
    $('tour-verdict').textContent = judged ? verdictWords(verdict) : '';
    $('tour-verdict').className = judged && verdict.clean ? 'good' : 'bad';
  }
}
