package backend

import (
	"slices"
	"strconv"
	"strings"
)

// IsSince reports whether a server's version, such as 10.11.14-MariaDB, is at least another one, such as 10.6.
func IsSince(version, least string) bool {
	return slices.Compare(numbersOf(version), numbersOf(least)) >= 0
}

func numbersOf(version string) []int {
	var list []int
	for field := range strings.FieldsFuncSeq(version, func(r rune) bool { return r < '0' || r > '9' }) {
		number, _ := strconv.Atoi(field) // it has digits only
		list = append(list, number)
	}
	return list
}
