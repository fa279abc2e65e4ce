use utoipa::ToSchema;

use super::words;

words! {
    /// How long an approval is remembered.
    #[derive(Default, ToSchema)]
    pub enum Remember {
        /// It is for this call.
        #[default]
        Once = "once",
        /// It is for calls like this until the daemon ends.
        Session = "session",
        /// It is for calls like this, for good.
        Always = "always",
    }
}
