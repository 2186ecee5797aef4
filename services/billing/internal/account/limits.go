package account

import "time"

// Bounds of accounts, keys and their projection. Sizes are bytes.
const (
	// secretBytes are the random bytes of a key, idBytes those of an id.
	secretBytes = 32
	idBytes     = 10
	// shownChars of a key are kept, to tell keys apart by.
	shownChars = len(SecretPrefix) + 4
	// secretCharsMin is the least length of a key that somebody chose.
	secretCharsMin = len(SecretPrefix) + 8

	nameBytesMax = 200
	// modelsMax bounds the models that a key may be confined to.
	modelsMax     = 200
	modelBytesMax = 256
	// pageRows is how many rows a list reads at once.
	pageRows = 500

	// copyRows is how much is copied between two looks at the news.
	copyRows = 100
	// againAfter is the pause after a try to publish that failed, publishWait bounds
	// a try.
	againAfter  = 250 * time.Millisecond
	publishWait = 10 * time.Second
	// syncAllEvery is how often everything is compared with what is published.
	syncAllEvery = 10 * time.Minute
)
