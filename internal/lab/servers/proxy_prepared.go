package servers

import (
	"encoding/binary"
	"slices"
)

// preparedTexts are the statements that a client of MySQL has prepared on a link. From then on it sends their
// numbers alone, and rules are to know the statements all the same. It needs the proxy's mutex.
type preparedTexts struct {
	asked []byte            // the text that is being prepared, or nil
	texts map[uint32][]byte // by number
}

// The bytes of a packet of MySQL: its length, its number in an exchange, and what it is. A number of a statement
// follows, or its text.
const (
	mysqlHeader   = 4
	mysqlPrepare  = 0x16
	mysqlExecute  = 0x17
	mysqlPrepared = 0x00
	mysqlNumber   = mysqlHeader + 1
	mysqlNumbered = mysqlNumber + 4
)

// request is what rules are to look at in a request: the text of a statement in place of its number, and nothing
// where it is only being prepared.
func (p *preparedTexts) request(sent []byte) []byte {
	if len(sent) < mysqlNumbered || !isPacket(sent) {
		return sent
	}
	switch sent[mysqlHeader] {
	case mysqlPrepare:
		p.asked = slices.Clone(sent[mysqlNumber:])
		return nil
	case mysqlExecute:
		return slices.Concat(p.texts[binary.LittleEndian.Uint32(sent[mysqlNumber:])], sent)
	default:
		return sent
	}
}

// reply takes the number of the statement that is being prepared.
func (p *preparedTexts) reply(sent []byte) {
	if p.asked == nil || len(sent) < mysqlNumbered {
		return
	}
	if sent[mysqlHeader] == mysqlPrepared {
		if p.texts == nil {
			p.texts = make(map[uint32][]byte)
		}
		p.texts[binary.LittleEndian.Uint32(sent[mysqlNumber:])] = p.asked
	}
	p.asked = nil
}

// isPacket reports that a request is one packet of MySQL, the first one of its exchange.
func isPacket(sent []byte) bool {
	length := int(sent[0]) | int(sent[1])<<8 | int(sent[2])<<16
	return length == len(sent)-mysqlHeader && sent[3] == 0
}
