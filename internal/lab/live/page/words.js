// The words of the page in two languages. A key that a language lacks is shown in English.

const many = (n, thing) => `${number(n)} ${thing}${n === 1 ? '' : 's'}`;

const en = {
  skip: 'Skip to the sale', reader: 'You are watching. To steer, open the whole address that stocklab live printed.',
  sale: 'Sale', strategy: 'Strategy', group: 'grouped', fence: 'fenced', stock: 'Stock', clients: 'Clients', replicas: 'Replicas',
  rate: 'Requests/s', work: 'Work, ms', ttl: 'Lock TTL, s', room: 'Waiting room, admits/s', correct: 'Correct the stock from the ledger', 'mark.correct': 'stock corrected from the ledger:',
  'room-help': 'Waiting room: 0 is none. With one, each client waits in the line as one buyer after the other, and one buyer of four leaves without a word.',
  line: 'The waiting room', 'empty.line': 'With a waiting room, those who wait, are admitted and have left are counted here. Set how many buyers a second it admits, and start a sale.',
  'line.waiting': 'wait', 'line.wait': 'a new buyer waits', 'line.admitted': 'may buy now', 'line.admissions': 'admitted so far', 'line.left': 'have left', 'chart-line': 'Buyers who wait, were admitted and have left',
  'rate-help': '0 requests/s: each client sends its next request when the last one is answered.',
  'work-help': 'Work is added between read and write, under the lock. Other replicas or another TTL start the replicas anew.',
  start: 'Start', switch: 'Switch to this', pause: 'Pause', continue: 'Continue', stop: 'Stop',
  numbers: 'Now', 'in-stock': 'In stock, by the row', 'sold-by': 'Sold, by the ledger', oversold: 'Oversold', 'per-second': 'Answers a second', phase: 'The sale is',
  begin: 'Press Next below for the story; or press Start to sell with the strategy that is chosen, or play an experiment. These numbers stay in sight.',
  'tour.title': (n) => `The story, in ${n} sales`, 'tour.step': (n, of) => `The story, ${n} of ${of}`, 'tour.next': 'Next', 'tour.again': 'From the start', 'tour.skip': 'Skip',
  'tour.begin': 'From one buyer to a fenced lock on three replicas: each step is a real sale of 20 seconds at most. Next is all that you press.',
  'empty.times': 'While a sale runs, its units, the answers a second and their latency are drawn here.', 'empty.lanes': 'Each lease of the lock is drawn here on the line of its replica: who holds it, who waits, and where two hold it at once.', 'empty.sees': 'While a sale runs, the stock row, the keys and those who wait are listed here as the server has them.',
  verdict: 'Verdict of the audit', take: 'Set this up', 'over-time': 'Over time',
  'chart-stock': 'Units: sold by the ledger and left by the row, against what there was', 'chart-answers': 'Answers a second, by kind', 'chart-latency': 'Latency of the answers, ms',
  lanes: 'Who holds the lock', requests: 'What each request did', requestsSay: (n) => `${n} requests, each in a row of its replica or of its buyer: choose one for its steps.`, refused: 'out of stock', window: 'Window', auto: 'auto', freeze: 'Freeze',
  'lanes-keys': 'Arrow keys choose a lease, Enter shows its trace; Escape goes on.',
  'key-renewed': 'renewed by the watchdog', 'key-failed': 'not renewed', 'key-expired': 'its TTL was over', 'key-told': 'its holder was notified of the loss', 'key-woken': 'a waiter was woken', close: 'Close',
  traceOf: (l) => `${l.holder}, ${l.lock}${l.token ? `, token ${l.token}` : ''}${l.request ? `: request ${l.request}` : ''}`,
  'tr.noTTL': 'none: it lives in a session, or does not end', 'tr.wakes': 'Times woken', 'tr.caption': (s) => `Steps and events within ${s}`,
  'tr.step': 'Step', 'tr.at': 'Began', 'tr.took': 'Took', 'tr.bar': 'When', 'tr.of': 'Of', 'tr.master': (n) => `master ${n}`, 'tr.left': (s) => `${s} were left`,
  'tr.purchase': 'purchase', 'tr.acquire': 'acquire', 'tr.connect': 'connect', 'tr.begin': 'begin', 'tr.read': 'read', 'tr.work': 'work', 'tr.write': 'write', 'tr.commit': 'commit', 'tr.rollback': 'rollback', 'tr.release': 'release', 'tr.command': 'Redis', 'tr.other': 'other',
  'tr.granted': 'granted', 'tr.held': 'held', 'tr.lost': 'lost', 'tr.released': 'released', 'tr.renewed': 'renewed', 'tr.not-renewed': 'not renewed', 'tr.expired': 'TTL over', 'tr.woken': 'woken', 'tr.voted-for': 'granted by', 'tr.voted-against': 'refused by', 'tr.no-vote': 'no answer of',
  'tr.untraced': 'No steps: of each replica 50 requests a second are traced, when they have ended.',
  'key-hold': 'held, with its fencing token', 'key-wait': 'waited', 'key-two': 'two holders', 'key-lost': 'lost: the holder was notified',
  machines: 'Faults by hand', sees: 'What the server sees', server: 'Server', code: 'The code of this strategy',
  trial: 'Lock libraries on trial', 'trial-says': 'What redsync, etcd’s Mutex and others do when the holder pauses, a reply is lost, or a server fails. A mark opens to what happened; not promised is no fault. stocklab trial asks again.',
  measured: 'Everything here is measured: answers over HTTP, the row and the ledger, the leases that replicas record, and what servers say of themselves. Recording every lease and reading the row cost the sale a little.',
  live: 'live', lostLink: 'no connection; trying again', sold: 'sold', left: 'left', initial: 'there was', rejected: 'out of stock', busy: 'busy', failed: 'failed', unknown: 'unknown',
  'phase.idle': 'not begun', 'phase.starting': 'starting', 'phase.selling': 'selling', 'phase.paused': 'paused', 'phase.stopping': 'waiting for the last answers', 'phase.ended': 'over',
  'status.running': 'runs', 'status.paused': 'paused', 'status.down': 'down', 'status.working': 'wait…',
  'do.kill': 'Kill', 'do.pause': 'Pause', 'do.resume': 'Resume', 'do.start': 'Start', 'do.trap': 'Pause in mid-purchase', 'do.add': 'Add a replica', 'do.lag': 'Stop replication', 'do.promote': 'Let it take over', 'do.ahead': 'Clock an hour ahead', 'do.right': 'Set its clock right', 'do.slow': 'Delay by 100 ms', 'do.fast': 'No delay', 'do.cut': 'Cut off', 'do.mend': 'Connect again', 'do.drop': 'Lose its next answer', 'link.slow': 'each answer 100 ms later', 'link.cut': 'cut off from the replicas', 'do.remove': 'Remove',
  'mark.kill': 'killed', 'mark.pause': 'paused', 'mark.resume': 'resumed', 'mark.start': 'started again', 'mark.ended': 'ended', 'mark.add': 'sells, too', 'mark.lag': 'receives nothing more', 'mark.promote': 'is the primary now', 'mark.ahead': 'clock an hour ahead', 'mark.right': 'clock right again', 'mark.slow': 'answers 100 ms later', 'mark.fast': 'answers at once again', 'mark.cut': 'cut off', 'mark.mend': 'connected again', 'mark.drop': 'is to lose an answer', 'mark.dropped': 'has acted, and its answer is lost', 'mark.remove': 'removed', 'mark.trap': 'stops in its next purchase', 'mark.trapped': 'stopped between read and write', 'mark.sell': 'sells through', 'mark.halt': 'sale paused', 'mark.end': 'sale over', 'mark.gap': 'gap in the record',
  embedded: (names) => `Embedded, and so no processes that could be killed: ${names}.`,
  exclusive: (n) => `Guarantees that nothing is oversold on ${n === 1 ? 'one replica' : n + ' replicas'}.`,
  oversells: (n, d) => `Guarantees nothing on ${n === 1 ? 'one replica' : n + ' replicas'}: ${d || 'oversells'}.`,
  whileHeld: (n) => `Oversells nothing on ${n === 1 ? 'one replica' : n + ' replicas'} while its lock is held. A holder that pauses, or works longer than the TTL, loses it without a notice: take it fenced.`,
  phantom: (n) => `The row shows ${many(n, 'unit')} more than exist, left there by lost updates. They are sold as well, and oversold goes on rising until they are gone.`,
  spoken: (p, n) => `Sold ${p.sold} of ${n}; ${p.stock} in stock by the row${p.oversold ? `; oversold by ${p.oversold}` : ''}.`,
  noLock: (s) => `${s} records no lock: nothing is drawn here. Its exclusion, if it has any, is in the code below.`,
  granted: (g, o) => `${many(g, 'lease')} granted; ${o === 0 ? 'none while another holder had the same lock' : `${o} of them while another holder had the same lock`}.`,
  left2: 'Of very many leases only the newest are passed on: the window begins where all of them are there.',
  waiting: (n) => `${n} waiting`, before: (ms) => `${ms} before now`,
  leaseSays: (l, f) => `${l.holder}, ${l.lock}${l.token ? `, token ${l.token}` : ', no token'}${l.request ? `, request ${l.request}` : ''}: waited ${f.wait}${f.held ? `, held ${f.held}` : ''}${l.lost ? '; lost, holder notified' : ''}${l.died ? '; its replica ended' : ''}${l.released ? '; released' : ''}${l.error ? ` (${l.error})` : ''}`,
  stillHeld: 'still held', now: 'now', noServer: (e) => `It does not answer: ${e}`, nothing: 'nothing',
  'see.row': 'the stock row', 'see.allocations': 'allocations', 'see.transactions': 'transactions in InnoDB', 'see.locks': 'locks in InnoDB', 'see.keys': 'keys of the item', 'see.nodes': 'nodes of the item', 'see.votes': 'the votes of the masters',
  'note.sqlite': 'SQLite cannot tell who writes or waits: it locks the file as a whole, for one writer at a time.',
  'note.mariadb': 'MariaDB lists a lock only while another transaction waits for it.',
  'note.etcd': 'The first in line holds the lock. etcd does not tell who watches: each waits until the keys before its own are gone.',
  'note.wchp': 'This ZooKeeper does not tell who watches: the word wchp is not in its whitelist.',
  'of.redlock': 'Five masters: a lease of redlock needs the vote of three.',
  'f.stock': 'stock', 'f.oversold': 'oversold', replicasWord: 'replicas', reqs: 'requests/s', lostUpdates: 'lost updates', errors: 'errors', p: 'p50 / p99, ms',
  faults: 'Something was done to a replica or a server meanwhile: failed requests are not held against the strategy.',
  'next.mutex': 'Two requests read the same stock and both sold it. Let one at a time in: mutex on one replica.',
  'next.shared': 'Each replica has a lock of its own, so that one of each can sell at once. Let the database compare: sql-conditional.',
  'next.fence': 'A lease ended while its holder worked on. Have the store check the fencing token: the late write is rejected.',
  'next.luck': 'It guarantees nothing here, and came out well all the same. Try again with more clients, and with some work between read and write.',
  'next.replicas': 'One replica is safe with it. Try three: each has a lock of its own.',
  'next.pause': (s) => `Now break it: with a TTL of ${s.ttl_s} s, ${number(s.stock)} units and ${s.work_ms} ms of work, have a replica pause in mid-purchase, and resume it after the TTL.`,
  'next.naive': 'Compare it with what the tutorials write first: naive.',
  'next.alone': 'Run the last strategy alone, to see what it guarantees by itself.',
  replay: 'Replay', recording: 'Recording', speed: 'Speed', back: 'Back to now', play: 'Play', 'play-stop': 'Stop', save: 'Save as a file', moment: 'Moment', recorded: 'a recording',
  against: 'Then once more, to compare', 'against.none': 'no', 'against.replicas': 'on one replica, or on three', 'against.group': 'grouped, or alone', 'against.fence': 'fenced, or not',
  onReplicas: (n) => (n === 1 ? 'one replica' : `${n} replicas`), compare: 'Two sales compared', 'compare-units': 'Units sold and left, from the begin of each', 'compare-rate': 'Answers a second', beside: 'Compare with the sale before',
  guest: 'Others run these replicas. Experiments, faults by hand, recorded leases, and another number of replicas, TTL or work are greyed out below, each with its reason.',
  'why.form': 'Not here: others chose the number of these replicas and their TTL, and these have no failpoint that could add work.', 'why.lab': 'Not here: experiments kill and pause servers and replicas of their own, and others run these. Start stocklab live without --url to play them.',
  'why.lanes': 'Nothing is drawn here: only replicas that stocklab itself starts record their leases.', 'why.faults': 'Not here: these are processes of others. Start stocklab live without --url for replicas that can be killed, paused, added and removed.',
  'why.pause': 'Nothing can be paused here: Windows has no signal for it. Linux, macOS and WSL have.',
  'why.replaced': 'Replaced: redis-replica is the primary now, and no request reaches this server.', 'mark.came': 'answers, too', 'mark.went': 'answers no more',
  'see.backends': 'the servers, as a replica sees them', 'note.guest': 'A replica tells its row and which servers answer. What the servers see is theirs.',
  buyers: 'Buyers with a phone', 'buyers-at': (url) => `Phones buy at ${url}. With 0 clients they alone buy, until the sale is stopped.`, 'buyers-code': (url) => `QR code of ${url}`, 'buyer.bought': 'bought', 'buyer.no': (no, of) => `no. ${number(no)} of ${number(of)}`, 'class.start': 'Sell 5 units to the class, with 500 ms of work', projector: 'Large, for a projector',
  'buy.name': 'Your name', 'buy.join': 'Join the sale', 'buy.buy': 'Buy one',
  'bought.sold': 'Bought.', 'bought.rejected': 'Sold out.', 'bought.unknown': 'Not known: the answer did not come.', 'bought.busy': 'Busy. Try again.', 'bought.closed': 'Nothing is sold now.',
  'bought.failed': (p) => `Not bought: ${p}.`, 'bought.mine': (n) => `You have bought ${n}.`, 'bought.no': (no, of) => `You hold no. ${number(no)} of ${number(of)}.${no > of ? ' It does not exist: the item is oversold.' : ''}`,
  'report.before': '← previous', 'report.after': 'next →', story: 'What happens', lab: 'Experiments', pair: 'Failure and remedy, side by side', make: 'Play this experiment', remedy: 'what helps', failure: 'the failure', expected: 'Expected', promised: 'Promised', marks: 'Marks', found: 'Found', 'not-run': 'Not made', holds: 'as expected', 'holds-not': 'not as expected', making: (n) => (n > 1 ? `now, try ${n}` : 'now'), later: 'to come', stopped: 'stopped',
  'phase.playing': 'an experiment', 'verdict.reproduced': 'Reproduced', 'verdict.not reproduced': 'Not reproduced', 'verdict.not run': 'Not run',
  came: (n, all) => `${n === all && all > 0 ? `All ${all}` : `${n} of ${all}`} ${all === 1 ? 'experiment' : 'experiments'} came out as the sources claim`, interrupted: 'The run was ended before its last experiment.', machine: 'The machine and the servers', no: 'No.', verdictWord: 'Verdict', took: 'Time', tries: 'Tries', figures: 'Figures', instead: 'What to do instead:', evidence: 'its history', contradiction: 'what no order of the purchases explains', trouble: (why) => `It cannot be played, because its history cannot be read: ${why}`,
  other: '中文', restarted: 'Redis keeps nothing on disk here: after a kill it is empty.',
};

const zh = {
  skip: '跳到售卖', reader: '你正在旁观。要操作，请打开 stocklab live 在终端里打印的完整地址。',
  sale: '售卖', strategy: '策略', group: '合并提交 (group)', fence: '围栏 (fence)', stock: '库存', clients: '客户端数', replicas: '副本数',
  rate: '请求/秒', work: '业务耗时 ms', ttl: '锁 TTL 秒', room: '等候室，每秒放行', correct: '按账本修正库存', 'mark.correct': '按账本修正库存：',
  'room-help': '等候室：0 表示没有。有等候室时，每个客户端依次以一个个买家的身份排队，每四个买家中有一个不告而别。',
  line: '等候室', 'empty.line': '开启等候室后，这里显示排队、放行和离开的人数。设置每秒放行多少买家，然后开始售卖。',
  'line.waiting': '正在排队', 'line.wait': '新来者需等', 'line.admitted': '现在可购买', 'line.admissions': '累计放行', 'line.left': '已离开', 'chart-line': '排队、放行和离开的买家数',
  'rate-help': '0 表示闭环：每个客户端收到响应后再发下一个请求。',
  'work-help': '业务耗时加在读和写之间，即持锁期间。改副本数或 TTL 会重启副本。',
  start: '开始', switch: '切换到此策略', pause: '暂停', continue: '继续', stop: '结束',
  numbers: '当前', 'in-stock': '剩余（库存行）', 'sold-by': '卖出（账本）', oversold: '超卖', 'per-second': '每秒响应', phase: '状态',
  begin: '点下方的“下一步”，从头看这个故事；或者点“开始”，用选中的策略售卖；也可以播放一个实验。这些数字会一直显示在屏幕上。',
  'tour.title': (n) => `故事：${n} 次售卖`, 'tour.step': (n, of) => `故事：第 ${n} 步，共 ${of} 步`, 'tour.next': '下一步', 'tour.again': '从头再来', 'tour.skip': '跳过',
  'tour.begin': '从一个买家，到三个副本上加围栏的锁：每一步都是一次真实的售卖，最长 20 秒。只需点“下一步”。',
  'empty.times': '售卖时，这里画出库存与卖出件数、每秒响应数和延迟。', 'empty.lanes': '每次持锁都画在其副本的那一行：谁持有、谁在等、何时有两个持有者。', 'empty.sees': '售卖时，这里列出服务器里的库存行、键和等待者。',
  verdict: '对账结论', take: '按此设置', 'over-time': '随时间变化',
  'chart-stock': '件数：账本卖出、库存行剩余，与总量对比', 'chart-answers': '每秒响应，按类别', 'chart-latency': '响应延迟 ms',
  lanes: '谁持有锁', requests: '每个请求做了什么', requestsSay: (n) => `${n} 个请求，各在其副本或买家的一行里：选一个查看步骤。`, refused: '售罄', window: '时间窗', auto: '自动', freeze: '定格',
  'lanes-keys': '方向键选择一次持有，回车查看追踪，Esc 继续。',
  'key-renewed': '看门狗续期', 'key-failed': '续期失败', 'key-expired': 'TTL 已到', 'key-told': '持有者得知锁已丢失', 'key-woken': '等待者被唤醒', close: '关闭',
  traceOf: (l) => `${l.holder}，${l.lock}${l.token ? `，令牌 ${l.token}` : ''}${l.request ? `：请求 ${l.request}` : ''}`,
  'tr.noTTL': '无：随会话存在，或不会自行结束', 'tr.wakes': '唤醒次数', 'tr.caption': (s) => `${s} 内的步骤与事件`,
  'tr.step': '步骤', 'tr.at': '开始', 'tr.took': '耗时', 'tr.bar': '何时', 'tr.of': '内容', 'tr.master': (n) => `主节点 ${n}`, 'tr.left': (s) => `当时剩 ${s}`,
  'tr.purchase': '购买', 'tr.acquire': '取锁', 'tr.connect': '连接', 'tr.begin': '开始事务', 'tr.read': '读', 'tr.work': '业务', 'tr.write': '写', 'tr.commit': '提交', 'tr.rollback': '回滚', 'tr.release': '释放', 'tr.command': 'Redis', 'tr.other': '其他',
  'tr.granted': '授予', 'tr.held': '持有', 'tr.lost': '已丢失', 'tr.released': '已释放', 'tr.renewed': '续期', 'tr.not-renewed': '续期失败', 'tr.expired': 'TTL 到', 'tr.woken': '被唤醒', 'tr.voted-for': '同意', 'tr.voted-against': '拒绝', 'tr.no-vote': '无应答',
  'tr.untraced': '没有步骤：每个副本每秒追踪 50 个请求，并在其结束时记录。',
  'key-hold': '持有（数字是围栏令牌）', 'key-wait': '等待', 'key-two': '同时两个持有者', 'key-lost': '已丢失，持有者得到通知',
  machines: '手动制造故障', sees: '服务器看到的', server: '服务器', code: '这个策略的代码',
  trial: '检验别人的锁', 'trial-says': '持有者暂停、响应丢失、服务器故障时，redsync、etcd 的 Mutex 等怎么做。点开标记看发生了什么；未承诺不算缺陷。stocklab trial 会重新检验。', 'not promised': '未承诺', 'not applicable': '不适用',
  measured: '这里的一切都是实测：HTTP 响应、库存行与账本、副本记录的每次持锁、服务器自己报告的状态。记录持锁和读取库存行会略微影响售卖。',
  live: '实时', lostLink: '连接断开，正在重试', sold: '卖出', left: '剩余', initial: '总量', rejected: '售罄', busy: '繁忙', failed: '失败', unknown: '未知',
  'phase.idle': '未开始', 'phase.starting': '启动中', 'phase.selling': '售卖中', 'phase.paused': '已暂停', 'phase.stopping': '等待最后的响应', 'phase.ended': '已结束',
  'status.running': '运行中', 'status.paused': '已暂停', 'status.down': '已停止', 'status.working': '请稍候…',
  'do.kill': '杀死', 'do.pause': '暂停', 'do.resume': '恢复', 'do.start': '启动', 'do.trap': '在购买途中暂停', 'do.add': '增加一个副本', 'do.lag': '停止复制', 'do.promote': '接替主节点', 'do.ahead': '时钟拨快一小时', 'do.right': '时钟拨回', 'do.slow': '延迟 100 ms', 'do.fast': '取消延迟', 'do.cut': '切断', 'do.mend': '接通', 'do.drop': '丢失下一个响应', 'link.slow': '每个响应晚 100 ms', 'link.cut': '与副本断开', 'do.remove': '移除',
  'mark.kill': '被杀死', 'mark.pause': '被暂停', 'mark.resume': '恢复', 'mark.start': '重新启动', 'mark.ended': '退出', 'mark.add': '加入售卖', 'mark.lag': '不再收到数据', 'mark.promote': '成为主节点', 'mark.ahead': '时钟快了一小时', 'mark.right': '时钟恢复', 'mark.slow': '响应变慢 100 ms', 'mark.fast': '恢复正常速度', 'mark.cut': '被切断', 'mark.mend': '接通', 'mark.drop': '将丢失一个响应', 'mark.dropped': '已执行，但响应丢失', 'mark.remove': '被移除', 'mark.trap': '将在下一次购买途中停住', 'mark.trapped': '停在读与写之间', 'mark.sell': '策略', 'mark.halt': '售卖暂停', 'mark.end': '售卖结束', 'mark.gap': '记录有缺口',
  embedded: (names) => `内嵌运行，不是独立进程，无法杀死或暂停：${names}。`,
  exclusive: (n) => `保证在 ${n} 个副本上不超卖。`, oversells: (n, d) => `在 ${n} 个副本上没有保证：${({ 'lost updates': '丢失更新', 'stock below zero': '库存变负', undersells: '少卖' })[d] || '会超卖'}。`,
  whileHeld: (n) => `持锁期间，在 ${n} 个副本上不超卖；但持有者停顿或业务超过 TTL 时，锁可能悄悄丢失：请加围栏。`,
  phantom: (n) => `库存行里有 ${number(n)} 件并不存在，是之前丢失的更新留下的。它们也会被卖掉，卖完之前超卖数还会继续上升。`,
  spoken: (p, n) => `总量 ${n}，卖出 ${p.sold}，库存行剩余 ${p.stock}${p.oversold ? `，超卖 ${p.oversold}` : ''}。`,
  noLock: (s) => `${s} 没有记录锁，这里没有可画的。它如何互斥（如果有），见下方代码。`,
  granted: (g, o) => `共授予 ${g} 次；其中 ${o} 次发生时同一把锁已有别的持有者。`,
  left2: '持锁太频繁时只传最新的部分：时间窗从数据完整处开始。',
  waiting: (n) => `${n} 个在等`, before: (ms) => `${ms} 前`,
  leaseSays: (l, f) => `${l.holder}，${l.lock}${l.token ? `，令牌 ${l.token}` : '，无令牌'}${l.request ? `，请求 ${l.request}` : ''}：等待 ${f.wait}${f.held ? `，持有 ${f.held}` : ''}${l.lost ? '；已丢失，已通知持有者' : ''}${l.died ? '；副本已退出' : ''}${l.released ? '；已释放' : ''}${l.error ? `（${l.error}）` : ''}`,
  stillHeld: '仍持有', now: '现在', noServer: (e) => `没有响应：${e}`, nothing: '空',
  'see.row': '库存行', 'see.allocations': '行外的库存', 'see.transactions': 'InnoDB 事务', 'see.locks': 'InnoDB 锁', 'see.keys': '该商品的键', 'see.nodes': '该商品的节点', 'see.votes': '各主节点的投票',
  'note.sqlite': 'SQLite 不报告谁在写、谁在等：它锁整个文件，一次只有一个写者。',
  'note.mariadb': 'MariaDB 只列出有事务在等待的锁。',
  'note.etcd': '排在第一的持有锁。etcd 不报告谁在监听：每个等待者等到自己前面的键都消失。',
  'note.wchp': '这个 ZooKeeper 不报告谁在监听：它的白名单里没有 wchp。',
  'of.redlock': '五个主节点：redlock 的一次持有需要三票。',
  'f.stock': '库存', 'f.oversold': '超卖', replicasWord: '副本', reqs: '请求/秒', lostUpdates: '丢失更新', errors: '错误', p: 'p50 / p99 ms',
  faults: '期间有副本或服务器被手动制造故障：失败的请求不算策略的错。',
  'next.mutex': '两个请求读到同样的库存，都卖了出去。一次只放一个进来：单副本 mutex。',
  'next.shared': '每个副本各有一把锁，所以各能同时卖一件。让数据库来比较：sql-conditional。',
  'next.fence': '持有者还在干活，租约就结束了。让存储检查围栏令牌，迟到的写会被拒绝。',
  'next.luck': '它在这里没有任何保证，只是这次运气好。多些客户端，并在读写之间加些耗时，再试一次。',
  'next.replicas': '单副本时它是安全的。试试三个副本：各有各的锁。',
  'next.pause': (s) => `现在来破坏它：TTL ${s.ttl_s} 秒、库存 ${number(s.stock)} 件、业务耗时 ${s.work_ms} ms，让一个副本在购买途中暂停，过了 TTL 再恢复。`,
  'next.naive': '与教程最先写的 naive 比一比。', 'next.alone': '单独跑最后一个策略，看它自己的保证。',
  replay: '回放', recording: '记录', speed: '速度', back: '回到现在', play: '播放', 'play-stop': '停住', save: '存为文件', moment: '时刻', recorded: '记录',
  against: '然后再卖一次，作对比', 'against.none': '不对比', 'against.replicas': '换成单副本或三副本', 'against.group': '换成合并提交或单独提交', 'against.fence': '换成加围栏或不加',
  onReplicas: (n) => `${n} 个副本`, compare: '两次售卖对比', 'compare-units': '卖出与剩余件数，各从开始算起', 'compare-rate': '每秒响应', beside: '与上一次售卖对比',
  guest: '这些副本由别人运行。实验、手动故障、持锁记录，以及副本数、TTL 和业务耗时在下面显示为灰色，并各自说明原因。',
  'why.form': '这里不能改：副本数和 TTL 由运行者决定，这些副本也没有可以加入业务耗时的故障点。', 'why.lab': '这里不能做：实验要杀死和暂停自己的服务器与副本，而这些由别人运行。不带 --url 启动 stocklab live 就能播放。',
  'why.lanes': '这里没有可画的：只有 stocklab 自己启动的副本才记录持锁。', 'why.faults': '这里不能做：这些是别人的进程。不带 --url 启动 stocklab live，副本就能被杀死、暂停、增加和移除。',
  'why.pause': '这里不能暂停：Windows 没有暂停进程的信号，Linux、macOS 和 WSL 有。',
  'why.replaced': '已被接替：现在 redis-replica 是主节点，没有请求再到达这台服务器。', 'mark.came': '也开始响应', 'mark.went': '不再响应',
  'see.backends': '副本看到的各服务器', 'note.guest': '副本只报告库存行和哪些服务器有响应；服务器内部的状态看不到。',
  buyers: '用手机购买的人', 'buyers-at': (url) => `手机打开 ${url} 购买。客户端数设为 0 时只有手机在买，直到手动结束。`, 'buyers-code': (url) => `${url} 的二维码`, 'buyer.bought': '买到', 'buyer.no': (no, of) => `第 ${number(no)} 件，共 ${number(of)} 件`, 'class.start': '向全班售卖 5 件，业务耗时 500 ms', projector: '放大，供投影',
  'refused.409': '人数已满：有手机十分钟没有使用时，会空出位置。', 'refused.422': '这个名字不能用：已有人使用、太长，或有不能显示的字符。', 'refused.429': '请求太多，请稍后再试。',
  'buy.name': '你的名字', 'buy.join': '加入售卖', 'buy.buy': '买一件',
  'bought.sold': '买到了。', 'bought.rejected': '售罄。', 'bought.unknown': '结果未知：没有收到响应。', 'bought.busy': '繁忙，请再试。', 'bought.closed': '现在没有售卖。',
  'bought.failed': (p) => `没有买到：${p}。`, 'bought.mine': (n) => `你一共买到 ${n} 件。`, 'bought.no': (no, of) => `你买到第 ${number(no)} 件，共 ${number(of)} 件。${no > of ? '这一件并不存在：商品超卖了。' : ''}`,
  'report.before': '← 上一个', 'report.after': '下一个 →', story: '发生了什么', lab: '实验', pair: '问题与对策并排播放', make: '播放这个实验', remedy: '对策', failure: '问题', expected: '预期', promised: '承诺', marks: '结果', found: '发现', 'not-run': '未进行', holds: '符合预期', 'holds-not': '不符合预期', making: (n) => (n > 1 ? `进行中，第 ${n} 次` : '进行中'), later: '待进行', stopped: '已停止',
  'phase.playing': '实验中', 'verdict.reproduced': '已复现', 'verdict.not reproduced': '未复现', 'verdict.not run': '未进行',
  came: (n, all) => `${all} 个实验中有 ${n} 个与教程所说一致`, interrupted: '运行在最后一个实验之前就结束了。', machine: '机器与服务器', no: '编号', verdictWord: '结论', took: '用时', tries: '次数', figures: '数据', instead: '应当这样做：', evidence: '它的历史', contradiction: '没有购买次序能解释的部分', trouble: (why) => `无法播放：读不出它的历史：${why}`,
  other: 'English', restarted: '这里的 Redis 不落盘：被杀后是空的。',
};

const languages = { en, zh };
const asked = new URLSearchParams(location.search).get('lang'), kept = 'stocklab-language';
let current = [asked, remembered(), ...navigator.languages || [navigator.language]].find((l) => /^(en|zh)/.test(l))?.slice(0, 2) || 'en';

export const language = () => current;

// remembered is the language that was chosen last in this browser, or one that is set. A page in a file may keep nothing.
function remembered(language) {
  try {
    if (!language) return localStorage.getItem(kept);
    localStorage.setItem(kept, language);
    const here = new URL(location);
    here.searchParams.set('lang', language);
    history.replaceState(null, '', here);
  } catch { /* for this page alone */ }
  return language;
}

export const change = (to) => { current = remembered(to); };

export const $ = (id) => document.getElementById(id);

export function t(key, ...args) {
  const word = languages[current][key] ?? en[key] ?? key;
  return typeof word === 'function' ? word(...args) : word;
}

export const number = (n) => new Intl.NumberFormat(current === 'zh' ? 'zh-CN' : 'en').format(n);

// seconds are a time that is rounded, and is not below zero where it rounds to zero.
export const seconds = (ms) => `${(ms / 1000).toFixed(1).replace(/^-0\.0$/, '0.0')} s`;

// named and valued are the name and the value of a figure in the language of the page.
export const named = (f) => (current === 'zh' && f.zh) || f.name;
export const valued = (f) => (current === 'zh' ? f?.value.replace(/ units?$/, ' 件') : f?.value) ?? '';

// words fills in everything that is marked in the page.
export function words() {
  document.documentElement.lang = current === 'zh' ? 'zh-CN' : 'en';
  $('language').textContent = t('other');
  $('language').lang = current === 'zh' ? 'en' : 'zh';
  for (const e of document.querySelectorAll('[data-w]')) e.textContent = t(e.dataset.w);
  for (const e of document.querySelectorAll('[data-label]')) e.setAttribute('aria-label', t(e.dataset.label));
}
