// build_id.h - which build this code is of, where C++ objects cross the border of a plugin.

#pragma once

namespace passel {

/// "0.1.0-" and a fingerprint of the headers that cross the border and of the compiler. Static.
const char* BuildId();

}  // namespace passel
