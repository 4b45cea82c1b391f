"""What a policy sees and answers, for those who write one: `policies`, `snapshot`, `decision`. Pure; imported by
policies, decisions and tests."""
