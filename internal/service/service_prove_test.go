//go:build prove

package service_test

import "testing"

func TestProveEveryOtherPairSellsAllThatIsLeft(t *testing.T) {
	eachPair(t, isOther, sellsAllThatIsLeft)
}

func TestProveEveryOtherPairSellsAtTheSameTime(t *testing.T) {
	eachPair(t, isOther, sellsAtTheSameTime)
}

func isOther(first, second string) bool { return !isElsewhere(first, second) }
