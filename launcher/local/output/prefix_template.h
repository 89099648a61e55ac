// The text in front of each line of a rank: a template with {rank}, {local_rank}, {host}, {stream} and {time}. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/plan/worker_environment.h"

namespace launcher {

class PrefixTemplate {
 public:
  static constexpr std::string_view kDefault = "[{rank}] ";

  // `text` is a template, or "horovod" for its form `[1,RANK]<STREAM>:`. Throws LaunchError naming an unknown field.
  explicit PrefixTemplate(std::string_view text);
  // Reads the form of torchrun's --log-line-prefix-template: ${rank}, ${local_rank}, ${role_name}, ${hostname}, and $$
  // for a dollar sign. An unknown name is not replaced, as in Python's Template.safe_substitute.
  static PrefixTemplate from_torchrun(std::string_view text, std::string_view role);

  bool is_empty() const { return pieces_.empty(); }
  bool has_time() const;
  // `stream` is "stdout" or "stderr". `time` is inserted unchanged.
  std::string expand(const RankPlace& place, std::string_view host, std::string_view stream,
                     std::string_view time) const;

 private:
  enum class Field { kText, kRank, kLocalRank, kHost, kStream, kTime };
  struct Piece {
    Field field = Field::kText;
    std::string text{};
  };
  PrefixTemplate() = default;
  static Field field_named(std::string_view name);  // kText when the name is unknown
  static Field torchrun_field(std::string_view name);
  void add_text(std::string_view text);

  std::vector<Piece> pieces_;
};

// The present time in the format of {time}: "2025-01-31 23:59:59".
std::string time_text();

}  // namespace launcher
