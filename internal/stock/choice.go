package stock

// Choice is how an item is sold where a request does not say. What is empty or nil is
// as the configuration has it.
type Choice struct {
	Strategy string `json:"strategy,omitempty"`
	Group    *bool  `json:"group,omitempty"`
	// Fence has another name in answers: "fence" is the token that has claimed the row.
	Fence *bool `json:"fenced,omitempty"`
}
