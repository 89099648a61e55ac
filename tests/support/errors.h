// What a body throws, as text to look at.
#pragma once

#include <exception>
#include <string>

namespace ddp::test {

/// The message of the `Error` that `body` throws, or "no error"; others pass through.
template <typename Error = std::exception, typename Body>
std::string error_of(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace ddp::test
