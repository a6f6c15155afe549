// run_page.h - the page of a run, --report_html: made from its report by a script in Python, since
// there the drawings come from a library.
//
// The script is run_page.py in ../share/passel/page of the program's folder: there it is installed,
// and in a build folder that is a link to the sources. The first of the Pythons of $PATH and of the
// system that has matplotlib runs it.
//
// Threads  The main thread (base/subprocess.h).

#pragma once

#include <chrono>
#include <string>

#include "base/status.h"
#include "job/report.h"

namespace passel::job {

/// Whether MakeRunPage() will be able to make the page `path` of the flag `flag`, asked before
/// anything is computed. Takes half a second. Errors: those of CheckOutputPath(); kInvalidArgument
/// for "-", and where Python, matplotlib or the script is missing, with the name of the package.
Status CheckRunPage(const char* flag, const std::string& path);

/// Far more than a page takes; the first use of matplotlib looks at all fonts of the machine.
inline constexpr std::chrono::seconds kPageLimit{60};

/// Makes the page `path` of `report` in at most `limit`. On error `path` holds what it held before,
/// the report is in `path`.json, and the message says how to make the page of it.
/// REQUIRES: CheckRunPage() was OK for this path.
Status MakeRunPage(const std::string& path, const JobReport& report,
                   std::chrono::nanoseconds limit = kPageLimit);

}  // namespace passel::job
