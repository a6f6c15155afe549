// fork_children.h - descriptors that are for this process alone: their end tells others that it has
// ended, and a child of fork() that lived on with them would hold that back.
//
// The kernel closes none at fork(). So a child puts /dev/null in the place of each, before fork()
// returns there: its number stays taken, and means nothing.
//
// Threads    Any.

#pragma once

namespace passel {

/// That one is; to be said of each such descriptor as it is made. One whose number was taken by
/// another since is left alone.
void KeepFromChildren(int fd);

/// From now on children of this process are without them. For a library in a program that may fork:
/// our own programs have children that execute another one.
void LeaveChildrenWithout();

}  // namespace passel
