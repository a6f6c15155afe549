#include "support/terminal.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/deadline.h"
#include "support/program.h"

namespace passel::testing {

Terminal::Terminal(int columns) : master_(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)) {
  const bool opened =
      master_.valid() && ::grantpt(master_.get()) == 0 && ::unlockpt(master_.get()) == 0;
  EXPECT_TRUE(opened) << "this machine has no terminals to give";
  if (!opened) std::abort();
  name_ = ::ptsname(master_.get());
  const winsize size{24, static_cast<unsigned short>(columns), 0, 0};
  ::ioctl(master_.get(), TIOCSWINSZ, &size);
  ::fcntl(master_.get(), F_SETFL, O_NONBLOCK);
}

std::vector<std::string> Terminal::Command(const std::string& script) const {
  return {"sh", "-c",
          fmt::format("exec setsid --ctty --wait bash -c \"$0\" < {0} > {0} 2>&1", name_),
          fmt::format("PASSEL={}\nset -m\n{}", PASSEL_PROGRAM, script)};
}

void Terminal::Type(const std::string& keys) {
  ASSERT_EQ(::write(master_.get(), keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
}

const std::string& Terminal::Shown() {
  char buffer[4096];
  for (ssize_t got; (got = ::read(master_.get(), buffer, sizeof buffer)) > 0;) {
    shown_.append(buffer, static_cast<std::size_t>(got));
  }
  return shown_;
}

bool Terminal::WaitFor(const std::string& text, double seconds, std::size_t from) {
  const Deadline deadline = Deadline::After(Scaled(seconds));
  while (Shown().find(text, from) == std::string::npos) {
    if (deadline.Expired()) return false;
    pollfd entry{master_.get(), POLLIN, 0};
    ::poll(&entry, 1, 20);
    // Before a program has opened it, and after the last has closed it, poll() does not wait.
    if ((entry.revents & POLLHUP) != 0) ::usleep(2000);
  }
  return true;
}

}  // namespace passel::testing
