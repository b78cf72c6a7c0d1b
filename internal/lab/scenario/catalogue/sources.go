package catalogue

// The documents whose claims are put to the test, by their titles.
const (
	chapterOne  = "Distributed locks, chapter one (第一章 分布式锁)"
	flashSales  = "Distributed locks in a flash sale (秒杀系统下的分布式锁)"
	twoWays     = "Distributed locks, two implementations (分布式锁实现)"
	zooKeeping  = "Notes on ZooKeeper and its locks (基于 ZooKeeper 的分布式锁)"
	basicSearch = "Basic research: the design of distributed locks (分布式锁的设计要点)"
)
