// A secret that the launchers of a job share. Each proves that it knows the secret without sending it: an end that
// receives a challenge, a number that was never used before, answers with the challenge's HMAC-SHA-256 (of libsodium).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace launcher::control {

class Secret {
 public:
  // The least size in bytes.
  static constexpr std::size_t kMinSize = 16;
  static constexpr std::size_t kMaxSize = 4096;

  // Reads the secret from the file, without a newline at the end. Throws LaunchError when the file cannot be read, when
  // the secret is too short, or when this ddprun was built without libsodium.
  static Secret read(const std::string& path);

  // What one end claims of a connection; the proof covers all of it. `role` prevents that one end's proof is
  // replayed as the other's.
  struct Claim {
    std::string_view role{};
    std::string_view own_challenge{};
    std::string_view other_challenge{};
    std::string_view session{};
    std::uint64_t received = 0;
  };
  // 64 hexadecimal digits.
  std::string proof(const Claim& claim) const;
  // Takes the same time for every wrong proof.
  bool is_valid_proof(std::string_view proof, const Claim& claim) const;

 private:
  explicit Secret(std::string bytes) : bytes_(std::move(bytes)) {}
  std::string bytes_;
};

// Whether this ddprun was built with libsodium.
bool has_secrets();

// A warning for a secret file that other users can read or change; "" when there is no reason for one.
std::string exposed_secret_warning(const std::string& path);

// 64 hexadecimal digits that cannot be predicted, with and without libsodium. Throws LaunchError when the kernel
// provides no random numbers.
std::string new_challenge();

inline constexpr std::string_view kNodeRole = "node";
inline constexpr std::string_view kCoordinatorRole = "coordinator";

}  // namespace launcher::control
