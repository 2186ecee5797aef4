package tokenizer

// Message is one turn of a chat, reduced to what the template writes.
type Message struct {
	// Opens is the special token of the role.
	Opens ID
	// Texts are written one after the other, each tokenised by itself.
	Texts []string
	// MediaParts counts image, audio and video parts.
	MediaParts int
}

// Chat is what the template turns into a prompt.
type Chat struct {
	// Tools is the JSON of the offered tools, empty for none.
	Tools    string
	Messages []Message
	// Think is ThinkOn or ThinkOff, or zero to say nothing about reasoning.
	Think ID
	// Bare leaves out the token that asks for an answer.
	Bare bool
}

// MediaTokens is the fixed price of a media part. Real models charge by size;
// a simulator that does not look inside charges the same for each.
const MediaTokens = 256

// Prompt writes the chat as ids. A message costs its text and two tokens more.
// Messages come in order, so that a longer chat starts with the ids of the
// shorter one and the prefix cache can tell.
func (c Chat) Prompt() []ID {
	size := 0
	for _, m := range c.Messages {
		size += 2 + m.MediaParts*MediaTokens
		for _, t := range m.Texts {
			size += len(t)/bytesPerToken + 1
		}
	}
	ids := make([]ID, 0, size+len(c.Tools)/2+8)
	if c.Tools != "" {
		ids = append(Encode(append(ids, Tools), c.Tools), End)
	}
	for _, m := range c.Messages {
		ids = append(ids, m.Opens)
		for _, t := range m.Texts {
			ids = Encode(ids, t)
		}
		for range m.MediaParts * MediaTokens {
			ids = append(ids, Media)
		}
		ids = append(ids, End)
	}
	if c.Bare {
		return ids
	}
	ids = append(ids, Assistant)
	if c.Think != 0 {
		ids = append(ids, c.Think)
	}
	return ids
}
