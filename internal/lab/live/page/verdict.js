// What an audit came to, in words. The English ones come with the verdict; the Chinese ones
// are put together here from its figures.

import { language, number, t } from './words.js';

export function verdictWords(v) {
  if (language() !== 'zh') return v.words;
  const what = stateWords(v);
  if (v.known) return `${what} — 持有者停顿或干得太久时，这种锁的已知失效`;
  if (v.verdict !== 'as claimed') return `${what} — 不符合预期`;
  return v.clean ? what : `${what} — 符合预期`;
}

// figuresOf are what an audit has counted, each with its name.
export const figuresOf = (v) => [
  [t('f.stock'), v.stock], [t('sold'), v.sold], [t('left'), v.left], [t('f.oversold'), v.oversold], [t('lostUpdates'), v.lost],
  [t('rejected'), v.refused], [t('errors'), v.errors + v.unknown], [t('reqs'), Math.round(v.per_second)], [t('p'), `${v.p50_ms.toFixed(1)} / ${v.p99_ms.toFixed(1)}`],
].map(([name, value]) => [name, typeof value === 'number' ? number(value) : value]);

function stateWords(v) {
  if (v.clean) return '一致';
  return [[v.oversold, '超卖 %'], [v.lost, '丢失更新 %'], [-v.lost, '无订单而消失 %'], [-v.left, '库存为负 %'], [v.undersold, '有货却拒绝 %'], [v.duplicates, '重复订单 %']]
    .filter(([n]) => n > 0).map(([n, w]) => w.replace('%', number(n))).join('，') || '不一致';
}

const caveats = { // what SQLite does to a strategy
  'mutex-in-tx': 'SQLite 从开始到提交一次只允许一个写事务：解锁与提交之间的空隙在这里不存在',
  'sql-bucket': 'SQLite 一次只有一个写者：分桶在这里同样正确，但不会更快',
  'sql-for-update': 'SQLite 没有行锁：用整个数据库的锁代替 FOR UPDATE',
  'sql-unit': 'SQLite 一次只有一个写者，也没有 SKIP LOCKED：一件一行在这里同样正确，但更慢',
};

// remarkWords says why a verdict is not the expected one, or what the database does to the strategy.
export function remarkWords(v) {
  if (language() !== 'zh' || !v.remark) return v.remark;
  if (v.known) return '';
  if (v.verdict === 'as claimed') return caveats[v.strategy] ?? v.remark;
  const failed = Object.entries(v.error_types || {}).filter(([problem]) => problem !== 'busy' && !v.faults);
  if (v.orders < v.answered || v.orders > v.answered + v.unknown) return `不符合预期：账本有 ${number(v.orders)} 笔，客户端收到 ${number(v.answered)} 笔成功响应，另有 ${number(v.unknown)} 笔结果未知。`;
  if (failed.length) return `不符合预期：有请求失败（${failed.map(([problem, n]) => `${problem} ${number(n)}`).join('，')}）。`;
  if (v.expected_clean && !v.clean) return `不符合预期：策略保证一致，结果却${stateWords(v)}。`;
  if (v.expected_clean) return `不符合预期：请求足以卖完 ${number(v.stock)} 件，只卖出 ${number(v.sold)} 件。`;
  return '不符合预期：已知它在这里会出错，这次却一致。';
}
