// What the messages of library and launcher mean (--explain): the sections of docs/messages.md.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace launcher {

struct Explanation {
  std::string_view title;
  std::string_view text;      // what the messages of this section mean, and what to do
  std::string_view messages;  // a line each; … stands for names and numbers
};

// Defined in a source that the build makes of docs/messages.md and of all sources.
std::span<const Explanation> known_explanations();

// The sections with the message that has most of `message`'s words; empty when none has enough of them. Pure.
std::string explain(std::string_view message, std::span<const Explanation> explanations);

}  // namespace launcher
