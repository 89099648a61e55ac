// What is wrong with a command line, as one line for the user.
#pragma once

#include <stdexcept>

namespace launcher {

class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace launcher
