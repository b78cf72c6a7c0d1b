// The words of the page in two languages. A key that a language lacks is shown in English.

const en = {
  skip: 'Skip to the sale', reader: 'You are watching. The address that stocklab live printed in its terminal also steers.',
  sale: 'Sale', strategy: 'Strategy', group: 'grouped', fence: 'fenced', stock: 'Stock', clients: 'Clients', replicas: 'Replicas',
  rate: 'Requests/s', work: 'Work, ms', ttl: 'Lock TTL, s',
  'rate-help': '0 requests/s: each client sends its next request when the last one is answered.',
  'work-help': 'Work is added between read and write, under the lock. Other replicas or another TTL start the replicas anew.',
  start: 'Start', switch: 'Switch to this', pause: 'Pause', continue: 'Continue', stop: 'Stop',
  numbers: 'Now', 'in-stock': 'In stock, by the row', 'sold-by': 'Sold, by the ledger', oversold: 'Oversold', 'per-second': 'Answers a second', phase: 'The sale is',
  verdict: 'Verdict of the audit', take: 'Set this up', 'over-time': 'Over time',
  'chart-stock': 'Units: sold by the ledger and left by the row, against what there was', 'chart-answers': 'Answers a second, by kind', 'chart-latency': 'Latency of the answers, ms',
  lanes: 'Who holds the lock', window: 'Window', auto: 'auto', freeze: 'Freeze',
  'lanes-keys': 'Arrow keys choose a lease; Escape goes on.',
  'key-hold': 'held, with its fencing token', 'key-wait': 'waited', 'key-two': 'two holders', 'key-lost': 'lost: the holder was notified',
  machines: 'Faults by hand', sees: 'What the server sees', server: 'Server', code: 'The code of this strategy',
  measured: 'Everything here is measured: answers over HTTP, the row and the ledger, the leases that replicas record, and what servers say of themselves. Recording every lease and reading the row cost the sale a little.',
  live: 'live', lostLink: 'no connection; trying again', sold: 'sold', left: 'left', initial: 'there was', rejected: 'out of stock', busy: 'busy', failed: 'failed', unknown: 'unknown',
  time: 's', 'phase.idle': 'not begun', 'phase.starting': 'starting', 'phase.selling': 'selling', 'phase.paused': 'paused', 'phase.stopping': 'waiting for the last answers', 'phase.ended': 'over',
  'status.running': 'runs', 'status.paused': 'paused', 'status.down': 'down', 'status.working': 'wait…',
  'do.kill': 'Kill', 'do.pause': 'Pause', 'do.resume': 'Resume', 'do.start': 'Start', 'do.trap': 'Pause in mid-purchase',
  'mark.kill': 'killed', 'mark.pause': 'paused', 'mark.resume': 'resumed', 'mark.start': 'started again', 'mark.ended': 'ended', 'mark.trap': 'stops in its next purchase', 'mark.trapped': 'stopped between read and write', 'mark.sell': 'sells through', 'mark.halt': 'sale paused', 'mark.end': 'sale over', 'mark.gap': 'gap in the record',
  embedded: (names) => `Embedded, and so no processes that could be killed: ${names}.`,
  exclusive: (n) => `Guarantees that nothing is oversold on ${n === 1 ? 'one replica' : n + ' replicas'}.`,
  oversells: (n, d) => `Guarantees nothing on ${n === 1 ? 'one replica' : n + ' replicas'}: ${d || 'oversells'}.`,
  fenceNeeded: 'Its lock can be lost without a notice: only fenced is it safe.',
  spoken: (p, n) => `Sold ${p.sold} of ${n}; ${p.stock} in stock by the row${p.oversold ? `; oversold by ${p.oversold}` : ''}.`,
  noLock: (s) => `${s} records no lock: nothing is drawn here. Its exclusion, if it has any, is in the code below.`,
  granted: (g, o) => `${g} leases granted; ${o === 0 ? 'none while another holder had the same lock' : `${o} of them while another holder had the same lock`}.`,
  left2: 'Of very many leases only the newest are passed on: the window begins where all of them are there.',
  waiting: (n) => `${n} waiting`, before: (ms) => `${ms} before now`,
  leaseSays: (l, f) => `${l.holder}, ${l.lock}${l.token ? `, token ${l.token}` : ', no token'}: waited ${f.wait}${f.held ? `, held ${f.held}` : ''}${l.lost ? '; lost, holder notified' : ''}${l.died ? '; its replica ended' : ''}${l.released ? '; released' : ''}${l.error ? ` (${l.error})` : ''}`,
  stillHeld: 'still held', now: 'now', noServer: (e) => `It does not answer: ${e}`, nothing: 'nothing', ttlLeft: 'TTL',
  'see.row': 'the stock row', 'see.allocations': 'allocations', 'see.transactions': 'transactions in InnoDB', 'see.locks': 'locks in InnoDB', 'see.keys': 'keys of the item', 'see.nodes': 'nodes of the item', 'see.votes': 'the votes of the masters',
  'note.sqlite': 'SQLite cannot tell who writes or waits: it locks the file as a whole, for one writer at a time.',
  'note.mariadb': 'MariaDB lists a lock only while another transaction waits for it.',
  'note.etcd': 'The first in line holds the lock. etcd does not tell who watches: each waits until the keys before its own are gone.',
  'of.redlock': 'Five masters: a lease of redlock needs the vote of three.',
  'f.stock': 'stock', 'f.oversold': 'oversold', replicasWord: 'replicas', reqs: 'requests/s', lostUpdates: 'lost updates', errors: 'errors', p: 'p50 / p99, ms', orders: 'orders',
  faults: 'Something was done to a replica or a server meanwhile: failed requests are not held against the strategy.',
  'next.mutex': 'Two requests read the same stock and both sold it. Let one at a time in: mutex on one replica.',
  'next.shared': 'Each replica has a lock of its own, so that one of each can sell at once. Let the database compare: sql-conditional.',
  'next.fence': 'A lease ended while its holder worked on. Have the store check the fencing token: the late write is rejected.',
  'next.luck': 'It guarantees nothing here, and came out well all the same. Try again with more clients, or with some work between read and write.',
  'next.replicas': 'One replica is safe with it. Try three: each has a lock of its own.',
  'next.pause': 'Now break it: lower the TTL to 1 s, have a replica pause in mid-purchase, and resume it after that second.',
  'next.naive': 'Compare it with what the tutorials write first: naive.',
  'next.alone': 'Run the last strategy alone, to see what it guarantees by itself.',
  replay: 'Replay', recording: 'Recording', speed: 'Speed', back: 'Back to now', play: 'Play', 'play-stop': 'Stop', save: 'Save as a file', moment: 'Moment', recorded: 'a recording',
  against: 'Then once more, to compare', 'against.none': 'no', 'against.replicas': 'on one replica, or on three', 'against.group': 'grouped, or alone', 'against.fence': 'fenced, or not',
  onReplicas: (n) => (n === 1 ? 'one replica' : `${n} replicas`), compare: 'Two sales compared', 'compare-units': 'Units sold and left, from the begin of each', 'compare-rate': 'Sales a second', beside: 'Compare with the sale before',
  guest: 'Others run these replicas. Their number, TTL and work cannot be changed here, nothing can be killed or paused, and no lease is recorded.', 'see.backends': 'the servers, as a replica sees them', 'note.guest': 'A replica tells its row and which servers answer. What the servers see is theirs.',
  buyers: 'Buyers with a phone', 'buyers-at': (url) => `Phones buy at ${url}. With 0 clients they alone buy, until the sale is stopped.`, 'buyer.bought': 'bought', 'buyer.last': 'last answer',
  'buy.name': 'Your name', 'buy.join': 'Join the sale', 'buy.buy': 'Buy one',
  'bought.sold': 'Bought.', 'bought.rejected': 'Sold out.', 'bought.unknown': 'Not known: the answer did not come.', 'bought.busy': 'Busy. Try again.', 'bought.closed': 'Nothing is sold now.',
  'bought.failed': (p) => `Not bought: ${p}.`, 'bought.mine': (n) => `You have bought ${n}.`,
  lab: 'Experiments', make: 'Play this experiment', remedy: 'what helps', failure: 'the failure', expected: 'Expected', found: 'Found', 'not-run': 'Not made', holds: 'as expected', 'holds-not': 'not as expected', making: (n) => (n > 1 ? `now, try ${n}` : 'now'), later: 'to come', stopped: 'stopped',
  'phase.playing': 'an experiment', 'verdict.reproduced': 'Reproduced', 'verdict.not reproduced': 'Not reproduced', 'verdict.not run': 'Not run',
  other: '中文', steer: 'needs the token', restarted: 'Redis keeps nothing on disk here: after a kill it is empty.',
};

const zh = {
  skip: '跳到售卖', reader: '你正在旁观。要操作，请打开 stocklab live 在终端里打印的完整地址。',
  sale: '售卖', strategy: '策略', group: '合并提交 (group)', fence: '围栏 (fence)', stock: '库存', clients: '客户端数', replicas: '副本数',
  rate: '请求/秒', work: '业务耗时 ms', ttl: '锁 TTL 秒',
  'rate-help': '0 表示闭环：每个客户端收到响应后再发下一个请求。',
  'work-help': '业务耗时加在读和写之间，即持锁期间。改副本数或 TTL 会重启副本。',
  start: '开始', switch: '切换到此策略', pause: '暂停', continue: '继续', stop: '结束',
  numbers: '当前', 'in-stock': '剩余（库存行）', 'sold-by': '卖出（账本）', oversold: '超卖', 'per-second': '每秒响应', phase: '状态',
  verdict: '对账结论', take: '按此设置', 'over-time': '随时间变化',
  'chart-stock': '件数：账本卖出、库存行剩余，与总量对比', 'chart-answers': '每秒响应，按类别', 'chart-latency': '响应延迟 ms',
  lanes: '谁持有锁', window: '时间窗', auto: '自动', freeze: '定格',
  'lanes-keys': '方向键选择一次持有，Esc 继续。',
  'key-hold': '持有（数字是围栏令牌）', 'key-wait': '等待', 'key-two': '同时两个持有者', 'key-lost': '已失去，持有者得到通知',
  machines: '手动制造故障', sees: '服务器看到的', server: '服务器', code: '这个策略的代码',
  measured: '这里的一切都是实测：HTTP 响应、库存行与账本、副本记录的每次持锁、服务器自己报告的状态。记录持锁和读取库存行会略微影响售卖。',
  live: '实时', lostLink: '连接断开，正在重试', sold: '卖出', left: '剩余', initial: '总量', rejected: '售罄', busy: '繁忙', failed: '失败', unknown: '未知',
  time: '秒', 'phase.idle': '未开始', 'phase.starting': '启动中', 'phase.selling': '售卖中', 'phase.paused': '已暂停', 'phase.stopping': '等待最后的响应', 'phase.ended': '已结束',
  'status.running': '运行中', 'status.paused': '已暂停', 'status.down': '已停止', 'status.working': '请稍候…',
  'do.kill': '杀死', 'do.pause': '暂停', 'do.resume': '恢复', 'do.start': '启动', 'do.trap': '在购买途中暂停',
  'mark.kill': '被杀死', 'mark.pause': '被暂停', 'mark.resume': '恢复', 'mark.start': '重新启动', 'mark.ended': '退出', 'mark.trap': '将在下一次购买途中停住', 'mark.trapped': '停在读与写之间', 'mark.sell': '策略', 'mark.halt': '售卖暂停', 'mark.end': '售卖结束', 'mark.gap': '记录有缺口',
  embedded: (names) => `内嵌运行，不是独立进程，无法杀死或暂停：${names}。`,
  exclusive: (n) => `保证在 ${n} 个副本上不超卖。`, oversells: (n, d) => `在 ${n} 个副本上没有保证：${({ 'lost updates': '丢失更新', 'stock below zero': '库存变负', undersells: '少卖' })[d] || '会超卖'}。`,
  fenceNeeded: '锁可能在无通知的情况下失去，加围栏才安全。',
  spoken: (p, n) => `总量 ${n}，卖出 ${p.sold}，库存行剩余 ${p.stock}${p.oversold ? `，超卖 ${p.oversold}` : ''}。`,
  noLock: (s) => `${s} 没有记录锁，这里没有可画的。它如何互斥（如果有），见下方代码。`,
  granted: (g, o) => `共授予 ${g} 次；其中 ${o} 次发生时同一把锁已有别的持有者。`,
  left2: '持锁太频繁时只传最新的部分：时间窗从数据完整处开始。',
  waiting: (n) => `${n} 个在等`, before: (ms) => `${ms} 前`,
  leaseSays: (l, f) => `${l.holder}，${l.lock}${l.token ? `，令牌 ${l.token}` : '，无令牌'}：等待 ${f.wait}${f.held ? `，持有 ${f.held}` : ''}${l.lost ? '；已失去，已通知持有者' : ''}${l.died ? '；副本已退出' : ''}${l.released ? '；已释放' : ''}${l.error ? `（${l.error}）` : ''}`,
  stillHeld: '仍持有', now: '现在', noServer: (e) => `没有响应：${e}`, nothing: '空', ttlLeft: 'TTL',
  'see.row': '库存行', 'see.allocations': '行外的库存', 'see.transactions': 'InnoDB 事务', 'see.locks': 'InnoDB 锁', 'see.keys': '该商品的键', 'see.nodes': '该商品的节点', 'see.votes': '各主节点的投票',
  'note.sqlite': 'SQLite 说不出谁在写、谁在等：它锁整个文件，一次只有一个写者。',
  'note.mariadb': 'MariaDB 只列出有事务在等待的锁。',
  'note.etcd': '排在第一的持有锁。etcd 不报告谁在监听：每个等待者等到自己前面的键都消失。',
  'of.redlock': '五个主节点：redlock 的一次持有需要三票。',
  'f.stock': '库存', 'f.oversold': '超卖', replicasWord: '副本', reqs: '请求/秒', lostUpdates: '丢失更新', errors: '错误', p: 'p50 / p99 ms', orders: '订单',
  faults: '期间有副本或服务器被手动制造故障：失败的请求不算策略的错。',
  'next.mutex': '两个请求读到同样的库存，都卖了出去。一次只放一个进来：单副本 mutex。',
  'next.shared': '每个副本各有一把锁，所以各能同时卖一件。让数据库来比较：sql-conditional。',
  'next.fence': '持有者还在干活，租约就结束了。让存储检查围栏令牌，迟到的写会被拒绝。',
  'next.luck': '它在这里没有任何保证，只是这次运气好。多些客户端，或在读写之间加些耗时，再试一次。',
  'next.replicas': '单副本时它是安全的。试试三个副本：各有各的锁。',
  'next.pause': '现在来破坏它：把 TTL 调到 1 秒，让一个副本在购买途中暂停，过了这一秒再恢复。',
  'next.naive': '与教程最先写的 naive 比一比。', 'next.alone': '单独跑最后一个策略，看它自己的保证。',
  replay: '回放', recording: '记录', speed: '速度', back: '回到现在', play: '播放', 'play-stop': '停住', save: '存为文件', moment: '时刻', recorded: '记录',
  against: '然后再卖一次，作对比', 'against.none': '不', 'against.replicas': '换成单副本或三副本', 'against.group': '换成合并提交或单独提交', 'against.fence': '换成加围栏或不加',
  onReplicas: (n) => `${n} 个副本`, compare: '两次售卖对比', 'compare-units': '卖出与剩余件数，各从开始算起', 'compare-rate': '每秒卖出', beside: '与上一次售卖对比',
  guest: '这些副本由别人运行：这里不能改副本数、TTL 和业务耗时，不能杀死或暂停进程，也没有持锁记录。', 'see.backends': '副本看到的各服务器', 'note.guest': '副本只报告库存行和哪些服务器有响应；服务器内部的状态看不到。',
  buyers: '用手机购买的人', 'buyers-at': (url) => `手机打开 ${url} 购买。客户端数设为 0 时只有手机在买，直到手动结束。`, 'buyer.bought': '买到', 'buyer.last': '最近响应',
  'buy.name': '你的名字', 'buy.join': '加入售卖', 'buy.buy': '买一件',
  'bought.sold': '买到了。', 'bought.rejected': '售罄。', 'bought.unknown': '结果未知：没有收到响应。', 'bought.busy': '繁忙，请再试。', 'bought.closed': '现在没有售卖。',
  'bought.failed': (p) => `没有买到：${p}。`, 'bought.mine': (n) => `你一共买到 ${n} 件。`,
  lab: '实验', make: '播放这个实验', remedy: '对策', failure: '故障', expected: '预期', found: '发现', 'not-run': '未进行', holds: '符合预期', 'holds-not': '不符合预期', making: (n) => (n > 1 ? `进行中，第 ${n} 次` : '进行中'), later: '待进行', stopped: '已停止',
  'phase.playing': '实验中', 'verdict.reproduced': '已复现', 'verdict.not reproduced': '未复现', 'verdict.not run': '未进行',
  other: 'English', steer: '需要令牌', restarted: '这里的 Redis 不落盘：被杀后是空的。',
};

const languages = { en, zh };
let current = (navigator.languages || [navigator.language]).find((l) => /^(en|zh)/.test(l))?.slice(0, 2) || 'en';

export const language = () => current;

export function change(to) { current = to; }

export function t(key, ...args) {
  const word = languages[current][key] ?? en[key] ?? key;
  return typeof word === 'function' ? word(...args) : word;
}

export const number = (n) => new Intl.NumberFormat(current === 'zh' ? 'zh-CN' : 'en').format(n);

// words fills in everything that is marked in the page.
export function words() {
  document.documentElement.lang = current === 'zh' ? 'zh-CN' : 'en';
  for (const e of document.querySelectorAll('[data-w]')) e.textContent = t(e.dataset.w);
  for (const e of document.querySelectorAll('[data-label]')) e.setAttribute('aria-label', t(e.dataset.label));
}
