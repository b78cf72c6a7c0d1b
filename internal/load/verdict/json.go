package verdict

import (
	"encoding/json"
	"fmt"
	"os"
)

// WriteJSON keeps what a run came to in a file, for programs to read.
func WriteJSON(path string, v any) error {
	content, err := json.MarshalIndent(v, "", "  ")
	if err == nil {
		err = os.WriteFile(path, append(content, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("write figures: %w", err)
	}
	return nil
}
