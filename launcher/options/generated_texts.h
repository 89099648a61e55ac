// The texts that --generate prints, all made of the options as they are declared.
#pragma once

#include <span>
#include <string>

namespace CLI {
class App;
}

namespace launcher {

struct GeneratedText {
  const char* kind;  // as in --generate KIND
  std::string (*make)(const CLI::App& app);
};

std::span<const GeneratedText> generated_texts();

// `kind` is one of them.
std::string generated_text(const std::string& kind, const CLI::App& app);

}  // namespace launcher
