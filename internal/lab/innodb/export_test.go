package innodb

// DeleteAndDelete has the two that wait delete the row, too, and insert nothing.
func DeleteAndDelete() Lock {
	deletes := InsertAndDelete().release
	return Lock{release: deletes, take: deletes}
}
