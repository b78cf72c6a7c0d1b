package catalogue

import (
	_ "embed"
	"strings"
)

// Words are the title and the claim of an experiment.
type Words struct {
	Title string `json:"title"`
	Claim string `json:"claim"`
}

// Chinese has those of each experiment in Chinese, by its name.
func Chinese() map[string]Words {
	return map[string]Words{
		"oversell":             {"先读、再比较、再写回：超卖", "50 个买家各买 100 次，全部被接受，库存行里却还剩大半，可以继续卖出远多于库存的数量。"},
		"process-mutex":        {"进程内互斥锁保住单副本，但降低吞吐", "用进程内的锁包住扣减，单机上不再超卖，吞吐随之下降。"},
		"mutex-per-request":    {"每个请求新建一把锁，等于没有锁", "如果每个请求都新建对象，也就新建了锁，那么单机上锁就已经失效。"},
		"mutex-in-transaction": {"提交之前就解锁：下一个请求读到旧值", "在事务里加锁又在事务里解锁，下一个请求会在前一个提交之前读取；READ COMMITTED 和 MySQL 默认的 REPEATABLE READ 都是如此。"},
		"three-replicas":       {"负载均衡之后每个副本各有一把锁；外部的锁才是大家共用的", "nginx 后面三个服务就有三把锁，等于没有锁；对策是所有服务共用的外部系统里的锁。"},
		"holder-crashes":       {"SETNX 不设过期：持有者死后锁永不释放", "持有者死在 SETNX 与 DEL 之间，或 SETNX 与 EXPIRE 之间，锁就永远被占；过期时间与键一起设置，或使用持有者维持的会话、租约，别人最多等那么久。"},
		"work-outlasts-ttl":    {"过期时间比业务短：两个持有者，其中一个删了别人的锁", "业务比过期时间长，第二个持有者就会进来；第一个做完后删掉了第二个的锁，于是第三个也进来。"},
		"owner-check":          {"先看锁是谁的、再删除，是两步；用 Lua 是一步", "在比较持有者与 DEL 之间，锁可能过期并归了别人，却照样被删；把两步放进一个脚本即可。"},
		"reentrancy":           {"不可重入的锁被同一个人取两次，自己等自己", "持锁的方法又调用要同一把锁的方法，就会死锁自己；用哈希记下持有者和计数即可再次进入。"},
		"watchdog":             {"看门狗在持有者工作时续期，也随它一起死", "每过三分之一时间续期一次，租约不会在工作中途到期；续期由持有者自己的进程而不是旁边的服务来做，所以进程死了租约就会到期。"},
		"try-lock":             {"无限等待，与限时等待并回答“繁忙”", "无限等锁的请求，持有者工作多久就阻塞多久；秒杀里应当等一段时间，然后回答系统繁忙。"},
		"getset":               {"GETSET：GET 得到 nil 会堵住所有人；时钟不一致会放进两个", "持有者在别人的 SETNX 与 GETSET 之间删了锁，那人就设下一个没有持有者的过期时间，大家只能等它过去；时间又是客户端的时间，所以要求时钟一致。"},
		"failover":             {"键还没复制 Redis 就切换：两个持有者；五个主节点经得起同样的损失", "锁取自主节点，主节点在副本拿到键之前死去，被提升的副本会再次授予。在五个独立主节点上，失去一个没有影响。"},
		"master-restarts":      {"Redlock：主节点丢数据重启，一票投了两次", "授予锁的三个主节点中有一个空着重启，或丢了最后一秒，又授予一次，于是另一个竞争者凑到五票中的三票；对策是每条命令都落盘，或离开的时间长于 TTL。"},
		"clock-jumps":          {"Redlock：一个主节点的时钟跳变，锁在它那里提前到期", "三个主节点中一个的时钟向前跳或走得太快，键就在那里过期，别人凑到三票；三个时钟都往回拨，则死去持有者的锁迟迟不释放。避免跳变，或让存储检查围栏令牌；ZooKeeper 不依赖时钟。"},
		"split-vote":           {"Redlock：竞争者一再平分选票；随机延迟可以打破", "同时来要锁的竞争者各得不到半数，归还后又在同样的停顿后重来，谁也拿不到；对策是随机延迟。"},
		"herd":                 {"惊群：每次释放唤醒所有等待者，还是只唤醒下一个", "所有等待者监听同一个节点，每次释放都唤醒全部，除一个外都是白醒；各自监听前一个，则只唤醒一个。"},
		"late-watch":           {"设监听之前节点已经消失：再也等不到通知", "前一个节点在列出与监听之间被删除，监听者就在等一次已经发生过的删除；设好监听后再看一眼它在不在，就补上了这个缺口。"},
		"paused-holder":        {"持有者停顿超过租约：两个持有者；围栏使其无害", "客户端停顿超过会话、租约或过期时间，恢复后仍以为自己持有锁并写入；由存储检查围栏令牌，可以拒绝这次写入。"},
		"insert-lock":          {"用一行数据当锁：没有过期，不会等待，不能再次进入", "靠唯一键 INSERT 取得的锁，持有者死了就一直被占，被占时立即失败，也会锁住自己；若两个线程共用一个持有者标识又会都放进来。对策是清理旧行的任务、循环重试，以及行里的持有者。"},
		"for-update":           {"等待一行的请求耗尽连接池", "用 SELECT … FOR UPDATE 加锁，每个等待的请求都占着一个连接，直到连接池空了。"},
		"innodb-locks":         {"一条语句锁住什么：看索引与隔离级别；两个等待者如何死锁", "DELETE … WHERE id = 10 锁住的范围，因 id 的索引、隔离级别、表的大小和已删除的行，从一行到整张表不等；两个请求 FOR UPDATE 查一个不存在的行，或等待一个被删的行，再都去插入，就会死锁。"},
		"optimistic":           {"很多人要同一行时，乐观写者一再重试", "乐观锁把一条语句变成两条，高并发下数据库承受不了。"},
		"fairness":             {"最长等待：先来先服务的锁与不排队的锁", "好的锁有公平形式，按到达次序服务；靠一再重试的锁则看运气。"},
		"lost-reply":           {"服务器做了，响应丢了：盲目重发扣两次；带幂等键只扣一次", "没有等到响应说明不了发生了什么：服务器可能已经执行，只是响应丢了，盲目重试会再扣一次。"},
		"no-lock":              {"最省的安全做法：这里到底需要锁吗", "一条语句里比较并扣减的 UPDATE，除了数据库自己加的行锁，不需要别的锁。"},
		"two-strategies":       {"锁只排斥用它的人：一件商品上用两种策略，或有外来写者", "在锁内读、算、写回的策略，会覆盖不加锁者的写入，除非写时与读到的值比较。"},
		"get-compare-set":      {"Redis 里的库存用 GET、比较、SET：超卖；加锁就对，直到锁失效", "用 GET、比较、SET 修改 Redis 里的库存，单个和多个服务都会重复卖出；对策是用锁包住三步，前提是锁一直在手。"},
		"timestamp-locks":      {"键的值就是过期时间：DEL、nil、整秒和迟到的持有者", "以过期时间为值的锁，要用 GETSET 而不是 DEL 加 SETNX 来接管；nil 必须算授予，时钟可以差一个容差，时间要细于秒，持有者删除前要先看时间。"},
		"end-of-waiting":       {"等待结束不等于拿到锁：前面的等待者离开，或时间到了", "等待者把前面任何节点的删除、或自己的超时当成轮到自己，就会与持有者同时持锁；醒来要看谁排第一，时间到了要放弃。"},
		"redlock-quorum":       {"Redlock：来得太晚的票，和客户端不知道的票", "凑齐多数用的时间超过 TTL 不算授予，因为最早的票已过期；释放要发给所有主节点，没有响应的也要发，因为它可能有键。"},
		"spinning":             {"立即重试让 Redis 空忙；停一停就不会", "发现锁被占就立刻再问，只会让 Redis 白忙；两次之间停 50 ms 即可。"},
		"read-write-lock":      {"读写锁：读者共享，写者等所有人，也可能永远等下去", "看库存页的读者共享读锁、互不等待，拿写锁的购买不会被看到一半；但读者不断来，写者会饿死，租约到期的读锁也保护不了页面。"},
		"multi-lock":           {"两件商品的购物篮：按篮子顺序加锁会死锁，排序就不会", "联锁把几个名字当成一把；顺序任意时两个篮子互相等待，直到超时；中途失败的篮子必须归还已拿到的。"},
		"holds":                {"为付款而占用的库存：迟到的付款、两个清扫者、死去的清扫者、一人占光", "占用若只是一个状态加一个时间戳，先读后写：归还之后还会被付款，两个清扫者会各还一次，清扫者死在改状态与还库存之间则这些库存就丢了。"},
		"several-nodes":        {"数据库有多个可写节点时，库里的锁只是一个节点的锁", "在集群的一个节点上锁住的行、用 GET_LOCK 占用的名字，挡不住另一个节点上的持有者：副本各写各的节点就会超卖。一条比较并写入的语句仍然正确，因为各节点在提交时比对；所有副本都写同一个节点时，锁也仍然正确。"},
		"ensemble-size":        {"一个、三个、五个成员：写随数量下降，读降得少", "ZooKeeper 里锁的吞吐随集群变大而下降，因为节点只由 leader 创建和删除，其他成员要跟着确认。"},
	}
}

// chineseParts has a line with an experiment and its part, and below it, after a tab each, what is done in it and what
// is expected.
//
//go:embed parts.zh.txt
var chineseParts string

// PartWords are what is done in a part of an experiment, what is expected, and what was found.
type PartWords struct {
	Does   string `json:"does"`
	Expect string `json:"expect"`
	Says   string `json:"says,omitempty"`
}

// ChinesePart is what a part does and expects in Chinese, or empty where there are no words for it.
func ChinesePart(experiment, part string) (w PartWords) {
	_, found, _ := strings.Cut("\n"+chineseParts, "\n"+experiment+"/"+part+"\n\t")
	w.Does, found, _ = strings.Cut(found, "\n\t")
	w.Expect, _, _ = strings.Cut(found, "\n")
	return w
}
