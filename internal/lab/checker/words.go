package checker

import (
	"cmp"
	_ "embed"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Fact is one statement of a finding: a code, for which both languages have a template, and its arguments.
type Fact struct {
	Code string `json:"code"`
	// Args are as both languages print them: names, numbers, and times with their units.
	Args []string `json:"args,omitempty"`
}

// Say makes a fact of names, numbers and times.
func Say(code string, args ...any) Fact {
	f := Fact{Code: code}
	for _, arg := range args {
		switch v := arg.(type) {
		case time.Duration:
			arg = span(v)
		case float64:
			arg = number(v)
		}
		f.Args = append(f.Args, fmt.Sprint(arg))
	}
	return f
}

// Found is a finding whose sentence is that of its facts.
func Found(holds bool, numbers map[string]float64, facts ...Fact) Finding {
	f := Finding{Holds: holds, Numbers: numbers}
	if f.Numbers == nil {
		f.Numbers = make(map[string]float64)
	}
	f.add(facts...)
	return f
}

// add appends facts and their English words.
func (f *Finding) add(facts ...Fact) {
	says := make([]string, 0, 1+len(facts))
	if f.Says != "" {
		says = append(says, f.Says)
	}
	all := words()
	for _, fact := range facts {
		says = append(says, cmp.Or(all[fact.Code].english.fill(fact.Args), fact.Code+": "+strings.Join(fact.Args, ", ")))
	}
	f.Facts, f.Says = append(f.Facts, facts...), strings.Join(says, "; ")
}

// Chinese is the sentence of a finding in Chinese, or empty where a fact of it has no words in this version.
func (f *Finding) Chinese() string {
	says := make([]string, 0, len(f.Facts))
	all := words()
	for _, fact := range f.Facts {
		args := fact.Args
		if fact.Code == "figure" || fact.Code == "not-measured" {
			args = append([]string{FigureInChinese(args[0])}, args[1:]...)
		}
		one := all[fact.Code].chinese.fill(args)
		if one == "" {
			return ""
		}
		says = append(says, one)
	}
	return strings.Join(says, "；")
}

// figures has a line with the name of a figure, in which * is what differs, and after a tab its Chinese name.
//
//go:embed figures.txt
var figures string

// FigureInChinese is the Chinese name of a figure, with the unit in brackets where its value has none, or the name that is given.
func FigureInChinese(name string) string {
	name = spaced(name)
	for line := range strings.Lines(figures) {
		known, chinese, _ := strings.Cut(strings.TrimSpace(line), "\t")
		before, after, open := strings.Cut(known, "*")
		rest, begins := strings.CutPrefix(name, before)
		middle, ends := strings.CutSuffix(rest, after)
		if begins && ends && (open || middle == "") {
			return strings.Replace(chinese, "*", middle, 1)
		}
	}
	return name
}

// template has {1} for the first argument, and {1|lease} for that number of leases.
type template string

// fill puts arguments in their places. It is empty where the template is, or an argument is missing.
func (t template) fill(args []string) string {
	missing := false
	filled := places().ReplaceAllStringFunc(string(t), func(place string) string {
		index, noun, counted := strings.Cut(strings.Trim(place, "{}"), "|")
		i, err := strconv.Atoi(index)
		if err != nil || i < 1 || i > len(args) {
			missing = true
			return ""
		}
		switch {
		case !counted:
			return args[i-1]
		case args[i-1] == "1":
			return "1 " + noun
		default:
			return args[i-1] + " " + noun + "s"
		}
	})
	if missing {
		return ""
	}
	return filled
}

func places() *regexp.Regexp { return regexp.MustCompile(`\{\d[^}]*\}`) }

// words are the templates of every code.
//
//nolint:funlen // a table
func words() map[string]struct{ english, chinese template } {
	return map[string]struct{ english, chinese template }{
		// what was expected
		"nothing-expected": {"nothing was expected", "没有预期"},
		"at-least":         {"at least {1} was expected", "预期至少 {1}"},
		"at-least-times":   {"at least {1} times was expected", "预期至少 {1} 倍"},
		"at-most":          {"at most {1} was expected", "预期最多 {1}"},
		"more-than":        {"more than {1} was expected", "预期多于 {1}"},
		"between":          {"{1} to {2} was expected", "预期 {1} 到 {2}"},
		"exactly":          {"{1} was expected", "预期 {1}"},
		"or-more":          {"{1} or more were expected", "预期 {1} 次或更多"},
		"or-more-within":   {"{1} or more within {2} were expected", "预期在 {2} 内有 {1} 次或更多"},
		"none":             {"none was expected", "预期一次也没有"},

		// figures and requests
		"figure":          {"{1} is {2}", "{1} = {2}"},
		"not-measured":    {"{1} was not measured", "没有测得 {1}"},
		"faster":          {"{1} sales a second through {2}, {3} through {4}: {5} times as many", "通过 {2} 每秒卖出 {1} 件，通过 {4} 为 {3} 件：{5} 倍"},
		"no-comparison":   {"nothing to compare: {1} sales a second through {2}, {3} through {4}", "无从比较：通过 {2} 每秒卖出 {1} 件，通过 {4} 为 {3} 件"},
		"failed-with":     {"{1} of {2|request} failed with {3}, after at most {4}", "{2} 个请求中有 {1} 个得到 {3}，最多用时 {4}"},
		"outcome-sold":    {"{1} of {2|request} came to sold", "{2} 个请求中有 {1} 个卖出"},
		"outcome-refused": {"{1} of {2|request} came to rejected", "{2} 个请求中有 {1} 个被拒绝"},
		"outcome-failed":  {"{1} of {2|request} came to failed", "{2} 个请求中有 {1} 个失败"},
		"outcome-unknown": {"{1} of {2|request} came to unknown", "{2} 个请求中有 {1} 个结果未知"},

		// the books
		"never-audited":   {"the stock was never audited", "从未对账"},
		"nothing-decided": {"no purchase was sold or rejected: there is nothing to audit", "没有一次购买成功或被拒绝：无账可对"},
		"consistent": {
			"consistent: the row agrees with {1} orders in the ledger, {2|purchase} answered as sold and {3} unknown",
			"一致：库存行与账本的 {1} 个订单相符，{2} 次购买返回成功，{3} 次结果未知",
		},
		"inconsistent":       {"the books are inconsistent", "账目不一致"},
		"item-never-audited": {"item {1} was never audited", "商品 {1} 从未对账"},
		"units-oversold":     {"{1|unit} oversold", "超卖 {1} 件"},
		"updates-lost":       {"updates of {1|unit} lost", "丢失更新 {1} 件"},
		"units-gone":         {"{1|unit} gone without a sale", "{1} 件没有售卖却不见了"},
		"below-zero":         {"{1} in stock", "库存为 {1}"},
		"orders-twice":       {"{1|order} assigned twice", "{1} 个订单分配了两次"},
		"orders-differ":      {"{1|order} in the ledger for {2} answered as sold and {3} unknown", "账本里有 {1} 个订单，返回成功的 {2} 个，结果未知的 {3} 个"},
		"units-differ":       {"{1|unit} in the ledger for {2} answered as sold and {3} unknown", "账本里有 {1} 件，返回成功的 {2} 件，结果未知的 {3} 件"},
		"not-held":           {"{1|unit} given back that were not held", "归还了 {1} 件并未占用的库存"},
		"buyers-wrong":       {"the counts of buyers are wrong: {1}", "买家的计数不对：{1}"},
		"audited-early":      {"audited {1} before the last answer", "对账比最后一个响应早 {1}"},
		"oversold":           {"of {1|unit}, {2} were sold: {3} more than there were", "共 {1} 件，卖出 {2} 件：超卖 {3} 件"},
		"lost-updates": {
			"of {1|unit}, {2} were sold and the row shows {3}: updates of {4|unit} were lost",
			"共 {1} 件，卖出 {2} 件，库存行还显示 {3} 件：丢失更新 {4} 件",
		},
		"sold-out": {
			"of {1|unit}, {2} were sold and {3} are left, where all of {4} were to be sold",
			"共 {1} 件，卖出 {2} 件，剩余 {3} 件；{4} 件应当全部卖出",
		},
		"undersold": {"{1|unit} rejected while they were in stock", "有 {1} 件仍在库存却被拒绝"},
		"duplicates": {
			"{1|purchase} meant, {2} of them sent more than once, came to {3|order} in the ledger, where {4} to {5} are right",
			"要买 {1} 次，其中 {2} 次重发过，账本里有 {3} 个订单；正确的是 {4} 到 {5} 个",
		},

		// an order of the purchases
		"linearizable": {
			"an order of {1|purchase} explains all answers, in {2|window} of which the largest has {3}",
			"{1} 次购买可线性化：有一个次序能解释所有响应，分 {2} 个窗口，最大的有 {3} 次",
		},
		"not-linearizable": {
			"no order of the purchases explains the answers up to that to client {1}, number {2} of a window that began with {3|unit}",
			"不可线性化：没有次序能解释截至客户端 {1} 的响应，它是开始时有 {3} 件的窗口里的第 {2} 个",
		},
		"answer-sold":     {"the answer is sold {1}, {2} left", "该响应是卖出 {1} 件，剩余 {2} 件"},
		"answer-rejected": {"the answer is {1} rejected", "该响应是拒绝 {1} 件"},
		"answer-unknown":  {"the outcome of {1|unit} is unknown", "{1} 件的结果未知"},
		"too-few-sold":    {"fewer than two purchases were sold: any order explains that", "卖出不到两次：任何次序都能解释"},
		"undecided":       {"whether an order of the purchases explains the answers is undecided", "是否有次序能解释这些响应，没有定论"},
		"stocked-twice":   {"item {1} was stocked more than once", "商品 {1} 上架不止一次"},
		"unknown-stock":   {"it is not known what there was of item {1}", "不知道商品 {1} 有多少"},
		"window-too-long": {"a window has {1} purchases, and no more than {2} are checked", "一个窗口有 {1} 次购买，最多检查 {2} 次"},
		"window-too-slow": {"a window of {1|purchase} was not checked within {2}", "一个 {1} 次购买的窗口没有在 {2} 内查完"},

		// holders
		"overlaps":       {"{1|overlap} of {2|lease}: {3} and {4} both held {5}, for {6}", "{2} 次持锁中有 {1} 次重叠：{3} 与 {4} 同时持有 {5}，长 {6}"},
		"too-few-leases": {"{1|lease} granted, and none that could overlap with another", "只授予了 {1} 次，不可能重叠"},
		"no-overlap":     {"no two of {1|lease} were held at once", "{1} 次持锁没有重叠"},
		"taken-early": {
			"{1} of {2|lease} began while another was held that was good for {3} and had begun less than that before",
			"{2} 次持锁中有 {1} 次，开始时别人有效期 {3} 的锁还没有过期",
		},
		"gave-up": {
			"{1|contender} gave up while another had the lock, {2} of them later than {3}",
			"{1} 个竞争者在别人持锁时放弃，其中 {2} 个晚于 {3}",
		},
		"longest-took":    {"the longest took {1}", "最长的用了 {1}"},
		"granted":         {"of {1|lease} that were asked for, {2} were granted", "请求的 {1} 次持锁中，授予 {2} 次"},
		"granted-to":      {"of {1|lease} that {2} asked for, {3} were granted", "{2} 请求的 {1} 次持锁中，授予 {3} 次"},
		"reentered":       {"of {1|lease} that a holder asked for once more, {2} were granted", "持有者重入 {1} 次，成功 {2} 次"},
		"together":        {"{1} and {2} held the name at the same time", "{1} 与 {2} 同时持有锁"},
		"apart":           {"{1} and {2} held the name one after the other", "{1} 与 {2} 先后持有锁"},
		"not-both":        {"{1} of {2} and {3} held the name", "{2} 与 {3} 中有 {1} 个持有过"},
		"shared":          {"{1} times one of {2|shared lease} was held while another was", "{2} 次共享持锁中有 {1} 次与别的重叠"},
		"half-made-pages": {"{1} of {2|page} showed a purchase that was half made", "{2} 个页面中有 {1} 个显示了做了一半的购买"},
		"loss-noticed":    {"{1} knew of the loss after {2}", "{1} 在 {2} 之后得知锁已丢失"},
		"no-loss-noticed": {"{1} was not notified of a loss", "{1} 没有得到锁已丢失的通知"},

		// tokens
		"same-token":    {"{1} and {2} both got token {3} of {4}", "{1} 与 {2} 得到 {4} 的同一个令牌 {3}"},
		"no-same-token": {"no token was granted to two holders", "没有令牌给过两个持有者"},
		"no-token":      {"no sale carries a token to compare", "没有一次售卖带有可以比较的令牌"},
		"stale-accepted": {
			"{1|stale write} accepted, such as that of token {2}, which left {3}, when token {4} had read {5}",
			"接受了 {1} 次过时的写入，例如令牌 {2} 的写入留下 {3} 件，而令牌 {4} 读到的是 {5} 件",
		},
		"none-stale": {"none of {1|sale} with a token is stale", "{1} 次带令牌的售卖没有一次是过时的"},
		"fenced-off": {"{1|request} fenced off and {2} notified that the lease was lost", "{1} 个请求被围栏拒绝，{2} 个得知租约已丢失"},

		// waits
		"no-lease-asked": {"no lease was asked for", "没有请求过锁"},
		"overtaken":      {"no wait was overtaken by more than {1} that began later", "每个等待者最多被 {1} 个后来者超过"},
		"no-wait":        {"no request waited", "没有请求等待"},
		"waits":          {"the longest of {1|wait} took {2}, {3} times the median of {4}", "{1} 次等待中最长 {2}，是中位数 {4} 的 {3} 倍"},
		"no-grant":       {"no lease was granted", "没有授予过锁"},
		"stalled-by-death": {
			"no contender was granted {1} for {2} after {3} died, while one waited for {4} of it",
			"{3} 死后 {2} 内没有竞争者得到 {1}，其间有一个等了 {4}",
		},
		"stalled-by-holder": {
			"no contender was granted {1} for {2} after {3} took it, while one waited for {4} of it",
			"{3} 取得 {1} 之后 {2} 内没有竞争者得到它，其间有一个等了 {4}",
		},
		"no-death": {"no holder died with a lease", "没有持有者在持锁时死去"},
		"freed": {
			"{1|holder} died with a lease, and {2} of these names were granted anew after {3} to {4}, as was expected",
			"{1} 个持有者在持锁时死去，其中 {2} 把锁如预期在 {3} 到 {4} 之后重新授予",
		},

		// what InnoDB locks
		"as-claimed":       {"in {1} of {2} combinations exactly what the source says is locked", "{2} 种组合中有 {1} 种锁住的与原文所说完全一致"},
		"place-not-tried":  {"{1}: {2} was not tried", "{1}：没有试过 {2}"},
		"place-free":       {"{1}: {2} is free, though the source has it locked", "{1}：{2} 没有锁住，原文说锁住"},
		"place-locked":     {"{1}: {2} is locked, though the source has it free", "{1}：{2} 被锁住，原文说没有"},
		"excused":          {"the reason is: {1}", "原因是：{1}"},
		"waits-in-passing": {"{1} waits for a locked row that does not match", "{1} 会等待一个被锁住的、不匹配的行"},
		"passes":           {"{1} passes a locked row that does not match", "{1} 会越过一个被锁住的、不匹配的行"},
		"semi-consistent": {
			"UPDATE looks at the row as it was last committed first (a semi-consistent read), of which the source says nothing",
			"UPDATE 先看这一行最后提交的版本（半一致读），原文没有提到",
		},
		"insertions":  {"{1} rows inserted, {2} duplicate keys, {3} deadlocks", "插入 {1} 行，重复键 {2} 次，死锁 {3} 次"},
		"server-says": {"the server: {1}", "服务器：{1}"},
	}
}
