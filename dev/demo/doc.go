// Package demo plays one story on a stack of its own: pushes from business
// transactions to FCM, with a fault of each kind in the middle, and the books at the
// end. The story is in faults.go, the judgement in package books.
package demo
