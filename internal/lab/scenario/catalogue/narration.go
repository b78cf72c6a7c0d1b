package catalogue

// Line is what a narrator says of a moment of an experiment, in both languages of the page. It has
// places for {who}, {other} and {n}, and $1, $2 for the groups of its pattern.
type Line struct {
	// Moment is one that the page finds in the leases or the stock; otherwise it is empty.
	Moment string `json:"moment,omitempty"`
	// Mark is a pattern for marks, or empty.
	Mark    string `json:"mark,omitempty"`
	English string `json:"en"`
	Chinese string `json:"zh"`
}

// Narration has a line for each moment, and for each mark of the experiments. The first that fits counts.
func Narration() []Line {
	return append(moments(), marks()...)
}

// moments are found by the page, in the evidence alone.
func moments() []Line {
	return []Line{
		{Moment: "granted", English: "{who} has the lock.", Chinese: "{who} 拿到了锁。"},
		{Moment: "waits", English: "{who} asks for the lock, which {other} holds, and waits.", Chinese: "{who} 来要锁，锁在 {other} 手里，于是等待。"},
		{Moment: "renewed", English: "The watchdog of {who} renews its lease.", Chinese: "{who} 的看门狗为租约续期。"},
		{Moment: "not-renewed", English: "A renewal of the lease of {who} fails.", Chinese: "{who} 的租约续期失败。"},
		{Moment: "expired", English: "Now the lease of {who} runs out. Its holder does not know.", Chinese: "此刻 {who} 的租约到期了，持有者并不知道。"},
		{Moment: "overlap", English: "{who} is granted the lock while {other} still believes that it holds it: two holders.", Chinese: "{other} 还以为自己持有锁，{who} 也拿到了：同时有两个持有者。"},
		{Moment: "freed", English: "The lease of the dead {who} runs out: the lock is free again.", Chinese: "死去的 {who} 的租约到期：锁又空闲了。"},
		{Moment: "lost", English: "{who} is notified that it has lost the lock.", Chinese: "{who} 得到通知：锁已失去。"},
		{Moment: "released", English: "{who} gives the lock back.", Chinese: "{who} 归还锁。"},
		{Moment: "late", English: "{who} is done, and releases a lock whose lease had run out.", Chinese: "{who} 做完了，来释放一把租约早已到期的锁。"},
		{Moment: "rolled-back", English: "The transaction of {who} is rolled back: nothing of its write is kept.", Chinese: "{who} 的事务回滚：它的写入一点也没有留下。"},
		{Moment: "woken", English: "The release by {who} wakes {n} of those that wait.", Chinese: "{who} 一释放，唤醒了 {n} 个等待者。"},
		{Moment: "gave-up", English: "{who} gives up waiting.", Chinese: "{who} 放弃等待。"},
		{Moment: "oversold", English: "More is sold than there was: {n} units too many by now.", Chinese: "卖出的比库存多了：到此刻超卖 {n} 件。"},
		{Moment: "lost-updates", English: "The row shows {n} units that are sold already: an update was overwritten.", Chinese: "库存行里有 {n} 件其实已经卖掉：有更新被覆盖了。"},
		{Moment: "rejected", English: "The stock is gone, and purchases are rejected.", Chinese: "库存卖完，之后的购买被拒绝。"},
		{Moment: "busy", English: "A request gets “busy”: it has waited for as long as it may.", Chinese: "有请求得到“繁忙”：它等到了上限。"},
		{Moment: "failed", English: "A purchase fails: its buyer gets an error, and no unit.", Chinese: "有购买失败：买家收到错误，没有买到。"},
		{Moment: "unknown", English: "A purchase stays without an answer: its buyer does not know what happened.", Chinese: "有购买没有等到响应：买家不知道结果。"},
	}
}

// marks are written by the steps of the parts.
func marks() []Line {
	return []Line{
		{Mark: `^held in its`, English: "{who} is between its read and its write, and takes its time there.", Chinese: "{who} 读过库存，还没写回，在中间干着活。"},
		{Mark: `^paused in its`, English: "{who} stops between its read and its write (SIGSTOP), as in a long garbage collection.", Chinese: "{who} 在读和写之间停住（SIGSTOP），好比一次很长的 GC。"},
		{Mark: `^went on in its`, English: "{who} goes on, with what it read before.", Chinese: "{who} 继续往下做，依据的是先前读到的值。"},
		{Mark: `^is woken`, English: "{who} runs again. For it no time has passed, and it still believes that it holds the lock.", Chinese: "{who} 恢复运行。对它来说时间没有流逝，它仍以为自己持有锁。"},
		{Mark: `^killed in its`, English: "{who} dies between its read and its write, with the lock in its hands.", Chinese: "{who} 在读和写之间死去，手里还拿着锁。"},
		{Mark: `^killed: its connections end`, English: "{who} is dead: its connections end, and it sends nothing more.", Chinese: "{who} 已死：连接断开，不再发出任何请求。"},
		{Mark: `^(killed|crashed)`, English: "{who} is dead. What it held it gives back to no one.", Chinese: "{who} 已死，它持有的锁不会由它归还。"},
		{Mark: `^lose reply: (.*)`, English: "The server carries out “$1”, and its reply is lost on the way.", Chinese: "服务器执行了“$1”，但响应在路上丢了。"},
		{Mark: `^hang reply: (.*)`, English: "The server carries out “$1”, and its reply never comes.", Chinese: "服务器执行了“$1”，但响应迟迟不来。"},
		{Mark: `^hold reply: (.*)`, English: "The server has carried out “$1”; its reply is held up on the way.", Chinese: "服务器已执行“$1”，响应被扣在路上。"},
		{Mark: `^lose: (.*)`, English: "The request “$1” is lost on its way to the server.", Chinese: "请求“$1”在去服务器的路上丢了。"},
		{Mark: `^hold: (.*)`, English: "The request “$1” is held up on its way to the server.", Chinese: "请求“$1”被扣在去服务器的路上。"},
		{Mark: `^let go: (.*)`, English: "What was held up goes on: “$1”.", Chinese: "被扣住的“$1”放行了。"},
		{Mark: `^before masters \[(.*)\]: (\w+ ?\w*) of (.*)`, English: "Before masters $1 “$3” meets a fault: $2.", Chinese: "在主节点 $1 之前，“$3”遇到故障：$2。"},
		{Mark: `^masters \[(.*)\] are out of reach for replica (\d)`, English: "Masters $1 are cut off from replica $2.", Chinese: "副本 $2 与主节点 $1 的连接被切断。"},
		{Mark: `^masters \[(.*)\] are out of`, English: "Masters $1 are cut off from {who}.", Chinese: "{who} 与主节点 $1 的连接被切断。"},
		{Mark: `^is killed`, English: "The {who} is killed.", Chinese: "{who} 被杀死。"},
		{Mark: `^is started again`, English: "The {who} runs again, with what it has on its disk.", Chinese: "{who} 重新启动，只有磁盘上的数据。"},
		{Mark: `^has all on its disk`, English: "The {who} has everything on its disk now.", Chinese: "{who} 的数据都已落盘。"},
		{Mark: `^loses its power`, English: "The {who} loses its power, and with it what was not on its disk.", Chinese: "{who} 断电，没有落盘的数据丢失。"},
		{Mark: `^writes to the primary no longer`, English: "From now on the replica of Redis gets no writes of its primary.", Chinese: "从现在起，Redis 主节点的写入不再到达副本。"},
		{Mark: `^the primary is killed`, English: "The primary dies, and its replica is promoted: it never had the key of the lock.", Chinese: "主节点死了，副本被提升：它从来没有这把锁的键。"},
		{Mark: `^its clock is 0s ahead`, English: "The clock of {who} stays right.", Chinese: "{who} 的时钟保持准确。"},
		{Mark: `^its clock is (.*) ahead`, English: "The clock of {who} jumps: it is $1 ahead.", Chinese: "{who} 的时钟跳了：快 $1。"},
		{Mark: `^its clock is (.*) behind`, English: "The clock of {who} steps back: it is $1 behind.", Chinese: "{who} 的时钟往回拨：慢 $1。"},
		{Mark: `^its clock runs 1 times`, English: "The clock of {who} runs as it should.", Chinese: "{who} 的时钟走得准。"},
		{Mark: `^its clock runs (.*) times`, English: "The clock of {who} runs $1 times as fast.", Chinese: "{who} 的时钟走得快：$1 倍。"},
		{Mark: `^the clock of the clients moves by (.*)`, English: "The clocks of the clients move by $1.", Chinese: "客户端的时钟移动 $1。"},
		{Mark: `^forgotten: the lock`, English: "Redis forgets the lock, as after a loss of its data.", Chinese: "Redis 忘了这把锁，如同丢失数据之后。"},
	}
}
