// errors.h - codes of the C interface as exceptions of Python.

#pragma once

#include <string>

#include "capi/passel.h"

namespace passel::python {

/// Throws the exception of passel/_errors.py for the code. REQUIRES: the GIL.
[[noreturn]] void Raise(passel_status code, const std::string& sentence);

}  // namespace passel::python
