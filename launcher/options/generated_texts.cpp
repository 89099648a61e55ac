#include "launcher/options/generated_texts.h"

#include <algorithm>
#include <array>

#include "launcher/options/completions.h"
#include "launcher/options/foreign_options.h"
#include "launcher/options/manual_page.h"
#include "launcher/options/usage_error.h"

namespace launcher {
namespace {

constexpr std::array<GeneratedText, 5> kTexts = {{
    {"man", manual_page},
    {"bash", bash_completion},
    {"zsh", zsh_completion},
    {"fish", fish_completion},
    {"coming-from", [](const CLI::App&) { return foreign_options_page(); }},
}};

}  // namespace

std::span<const GeneratedText> generated_texts() {
  return kTexts;
}

std::string generated_text(const std::string& kind, const CLI::App& app) {
  const auto text = std::find_if(kTexts.begin(), kTexts.end(), [&](const auto& other) { return other.kind == kind; });
  if (text == kTexts.end()) throw UsageError("--generate: nothing is known to make for " + kind);
  return text->make(app);
}

}  // namespace launcher
