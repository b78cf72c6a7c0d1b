package stock

// Choice is how an item is sold: by which strategy where a request does not say, and how
// much at a time. What is empty or nil is as the configuration has it.
type Choice struct {
	Strategy string `json:"strategy,omitempty"`
	Group    *bool  `json:"group,omitempty"`
	// Fence has another name in answers: "fence" is the token that has claimed the row.
	Fence *bool `json:"fenced,omitempty"`
	// MaxQuantity is the most units of one purchase, 1 to MaxQuantity.
	MaxQuantity *int64 `json:"max_quantity,omitempty"`
}

// WithoutQuantity is the choice of a strategy and its modifiers alone.
func (c Choice) WithoutQuantity() Choice {
	c.MaxQuantity = nil
	return c
}
