package config

// The values of deduct.choose.
const (
	chooseAuto = "auto"
	chooseOn   = "true"
)

// MayChoose reports whether public requests may name a strategy, group or fence other than their
// item's. With auto they may only where http.listen is on the loopback, which no foreign client
// reaches.
func (c Config) MayChoose() bool {
	if c.Deduct.Choose != chooseAuto {
		return c.Deduct.Choose == chooseOn
	}
	return onLoopback(c.HTTP.Listen)
}
