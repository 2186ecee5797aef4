package bus

// Principal is what an edge needs to know of a key: the projection of billing's
// rows, filed under the key's SHA-256. The key itself is nowhere in it.
type Principal struct {
	Account string `json:"account"`
	Key     string `json:"key"`
	// Models limits the key to these catalogue ids; empty means all.
	Models []string `json:"models,omitzero"`
	// Retain says that the account has opted in to retention.
	Retain bool `json:"retain,omitzero"`
}

// Funds is what an edge needs to know of an account's money: whether there is
// any. It saves work for an account that is empty; the hold decides.
type Funds struct {
	Account string `json:"account"`
	Empty   bool   `json:"empty"`
}
