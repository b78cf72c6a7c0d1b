package config

// The values of deduct.choose.
const (
	chooseAuto = "auto"
	chooseOn   = "true"
	chooseOff  = "false"
)

// MayChoose tells whether public requests may name another strategy, group or fence than
// their item's. With auto they may only where http.listen is on the loopback: what
// listens elsewhere may have strangers among its clients.
func (c Config) MayChoose() bool {
	if c.Deduct.Choose != chooseAuto {
		return c.Deduct.Choose == chooseOn
	}
	return onLoopback(c.HTTP.Listen)
}
