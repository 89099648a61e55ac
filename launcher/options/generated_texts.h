// The texts that --generate prints, all made of the options as they are declared.
#pragma once

#include <span>
#include <string>

namespace launcher {

class OptionTable;

// The manual page ddprun(1), in troff's man macros: ASCII, the same bytes for the same options, with no date.
std::string manual_page(const OptionTable& table);

// Completion of ddprun's options and of the program's own, as scripts for shells. Each offers options in the spelling
// of
// --help and knows the other one too, offers values where there is a choice and files or folders where one is meant,
// and after the program what completes the program's own command line. The same options give the same bytes.
std::string bash_completion(const OptionTable& table);
std::string zsh_completion(const OptionTable& table);
std::string fish_completion(const OptionTable& table);

struct GeneratedText {
  const char* kind;  // as in --generate KIND
  std::string (*make)(const OptionTable& table);
};

std::span<const GeneratedText> generated_texts();

// `kind` is one of them.
std::string generated_text(const std::string& kind, const OptionTable& table);

}  // namespace launcher
