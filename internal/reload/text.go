package reload

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"golang.org/x/text/encoding/unicode"
)

// Largest bounds every file of the configuration, in bytes: one that is named by mistake must not fill the memory.
const Largest = 1 << 20

// ReadText returns a file of up to Largest bytes, without the byte order mark that some editors begin it with, and in
// UTF-8 where that mark says UTF-16. What is no text is returned as it is. The error names the file.
func ReadText(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // it was only read
	content, err := io.ReadAll(io.LimitReader(file, Largest+1))
	if err != nil {
		return nil, err
	}
	if len(content) > Largest {
		return nil, fmt.Errorf("%s has more than %d bytes", path, Largest)
	}
	marked := bytes.HasPrefix(content, []byte("\xff\xfe")) || bytes.HasPrefix(content, []byte("\xfe\xff"))
	if marked && len(content)%2 == 0 && bytes.IndexByte(content, 0) >= 0 {
		return unicode.UTF16(unicode.LittleEndian, unicode.ExpectBOM).NewDecoder().Bytes(content)
	}
	return bytes.TrimPrefix(content, []byte("\xef\xbb\xbf")), nil
}
